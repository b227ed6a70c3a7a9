"""The visit to a GPU: ``make gpu-check``, which is ``pytest -m gpu tests/gpu_check`` with a clock and a record.

``test_visit`` has the four minutes that answer what matters, ``test_visit_rest`` what is behind them; ``conftest`` keeps time and
record, ``visit`` is what a step is given, ``rehearsal`` stands in for a GPU, ``travel`` goes to a GPU machine and back.
"""
