"""What a stack's own trainer loads when it is certified: the observer, and for a rehearsal the CPU in place of CUDA.

Staged into a folder in front of PYTHONPATH (:func:`splatfix.certify.staging.stage_observer`). Standard library and torch only,
Python 3.7 and torch 2.0 upwards.
"""
