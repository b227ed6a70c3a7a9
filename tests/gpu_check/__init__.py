"""What only a machine with an NVIDIA GPU can show: ``make gpu-check``, or ``pytest -m gpu tests/gpu_check``.

``test_visit`` is the plan: ordinary tests in order, each named for a subject in ``steps``. ``conftest`` gives each its time and
its notes, ``visit`` keeps the record; ``command`` asks first whether anything can run here. ``children`` are programs that run
in the environments under test; ``rehearsal`` holds the stand-ins by which every step also runs without a GPU.
"""
