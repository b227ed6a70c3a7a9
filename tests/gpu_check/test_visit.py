"""Each step of the plan is a test that needs a GPU: ``pytest -m gpu tests/gpu_check -k "facts or scene-torch"``."""

from operator import attrgetter

import pytest

from .plan import PLAN
from .record import Outcome
from .visit import Step, Visit


@pytest.mark.gpu
@pytest.mark.parametrize("step", PLAN, ids=attrgetter("name"))
def test_step(step: Step, visit: Visit) -> None:
    result = visit.perform(step)
    if result.outcome is Outcome.SKIPPED:
        pytest.skip("; ".join(result.problems))
    if result.problems:
        pytest.fail("; ".join(result.problems), pytrace=False)
