"""What only a machine with an NVIDIA GPU can show: ``make gpu-check``, or ``pytest -m gpu tests/gpu_check``.

``plan`` lists the steps, of which ``test_visit`` makes tests; ``steps`` holds them, one subject a file. ``visit`` gives each its
time and keeps the record; ``command`` asks first whether anything can run here. ``children`` are programs that run in the
environments under test; ``rehearsal`` holds the stand-ins by which every step also runs without a GPU.
"""
