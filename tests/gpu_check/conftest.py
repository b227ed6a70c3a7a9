"""Time and notes for the steps of a visit to a GPU; each leaves its result in the record as it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from splatfix.core.scratch import temporary_folder

from . import needs
from .context import Context
from .notes import Notes, on_one_line
from .record import Outcome, StepResult
from .visit import Step, Visit, steps_of

BUDGET = 480.0
"""Seconds for the whole."""
VISIT = pytest.StashKey[Visit]()
STEP = pytest.StashKey[Step]()
NOTES = pytest.StashKey[Notes]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "step(name, title, limit): a step of a visit to a GPU; see tests/gpu_check/visit.py"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Number the steps as the plan has them, whichever of them are chosen."""
    steps = steps_of(items)
    for item in items:
        if item.name in steps:
            item.stash[STEP] = steps[item.name]


@pytest.fixture(scope="session")
def visit(request: pytest.FixtureRequest) -> Iterator[Visit]:
    """That of ``make gpu-check``; plain pytest makes one where there is a GPU."""
    given = request.config.stash.get(VISIT, None)
    steps = [item.stash[STEP] for item in request.session.items if STEP in item.stash]
    with temporary_folder() as work:
        current = given or _plain_visit(work)
        request.config.stash[VISIT] = current
        current.kept = sum(step.limit for step in steps if step.kept)
        names = [step.name for step in steps]
        current.begin_builds([name.removeprefix("install-") for name in names if name.startswith("install-")])
        yield current
        current.close()


def _plain_visit(work: Path) -> Visit:
    machine, obstacle = needs.machine()
    if obstacle:
        pytest.skip(obstacle)
    sources, _ = needs.sources_in(Path(os.environ["GPU_SOURCES"]) if "GPU_SOURCES" in os.environ else None)
    out = Path("gpu-check").absolute()
    out.mkdir(exist_ok=True)
    return Visit(Context(str(work), str(out), sources), machine, until=time.monotonic() + BUDGET)


@pytest.fixture
def notes(request: pytest.FixtureRequest) -> Notes:
    """Where the step writes down what it sees."""
    request.node.stash[NOTES] = Notes()
    return request.node.stash[NOTES]


@pytest.fixture
def context(request: pytest.FixtureRequest, visit: Visit) -> Context:
    """Where things are, and how programs are run within the step's time."""
    return visit.context_for(request.node.stash[STEP])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """The step's result, from how its test ended; one of which something did not hold, or that showed nothing, has failed."""
    outcome: Any = yield
    visit = item.config.stash.get(VISIT, None)
    if STEP not in item.stash or visit is None or (call.when != "call" and call.excinfo is None):
        return
    result = result_of(item.stash[STEP], item.stash.get(NOTES, Notes()), call, visit.context.rehearsal)
    visit.ended(result)
    report = outcome.get_result()
    if result.outcome is Outcome.FAILED and report.passed:
        report.outcome = "failed"
        report.longrepr = "; ".join(result.problems)


def result_of(step: Step, notes: Notes, call: pytest.CallInfo[None], rehearsal: bool) -> StepResult:
    """What a test that ended, however, says in the record."""
    outcome = Outcome.REHEARSED if rehearsal else Outcome.PASSED
    problems = tuple(notes.problems)
    if call.excinfo is not None:
        error = call.excinfo.value
        if isinstance(error, pytest.skip.Exception):
            outcome = Outcome.SKIPPED
            problems = (str(error.msg),)
        else:
            outcome = Outcome.FAILED
            problems = (*problems, on_one_line(f"{type(error).__name__}: {error}"))
    elif problems:
        outcome = Outcome.FAILED
    elif not notes.claims:
        outcome = Outcome.FAILED
        problems = ("it ended and showed nothing",)
    return StepResult(
        step.number,
        step.name,
        step.title,
        outcome,
        round(call.duration, 1),
        tuple(notes.claims),
        problems,
        notes.numbers,
    )
