"""What only a machine with an NVIDIA GPU can show, as a plan of numbered steps: ``make gpu-check``.

``cli`` asks whether anything can run here and drives ``plan``; every file of ``steps`` is a subject; ``record`` is what
comes out; ``children`` are programs that run in the environments under test; ``rehearsal`` holds the stand-ins by which
every step also runs where no GPU is.
"""
