"""A step that fails, crashes, hangs or is skipped is reported as that, later steps run, and time is kept for the last."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from splatfix.core.files import read_json

from . import needs, session
from .conftest import result_of
from .context import Context
from .notes import Failed, Notes
from .record import Claim, Outcome, StepResult, exit_code_of, read_record, without_serials
from .steps import install
from .steps.train import spread_of
from .steps.visible import forms
from .visit import SPENT, Step, Visit, chosen

SKIP = pytest.skip.Exception


def visit_in(folder: Path, *, seconds: float = 100.0, rehearsal: bool = False) -> Visit:
    context = Context(str(folder / "work"), str(folder), {}, rehearsal)
    return Visit(context, {"gpu": "a card"}, until=time.monotonic() + seconds)


def passed(name: str, outcome: Outcome = Outcome.PASSED) -> StepResult:
    claims = (Claim("a", "b"),) if outcome is Outcome.PASSED else ()
    problems = () if claims else ("x",)
    return StepResult(1, name, name, outcome, claims=claims, problems=problems)


def test_the_plan_is_in_order() -> None:
    steps = session.collect()
    names = [step.name for step in steps]
    assert len(set(names)) == len(names) == 25
    assert [step.number for step in steps] == list(range(1, 26))
    for index, step in enumerate(steps):
        assert set(step.needs) <= set(names[:index]), step.name
    assert [step.name for step in steps if step.kept] == ["take-back"] == names[-1:]
    wants = {want for step in steps for want in step.wants}
    assert wants <= {*needs.MORE, *needs.TOOLS} and needs.NVCC in wants
    assert {f"install-{name}" for name in install.JOBS} <= set(names)


def test_what_a_chosen_step_needs_is_chosen() -> None:
    assert chosen(session.collect(), ["seed"]) == {"seed", "train-inria", "install-stack"}


PLAN = """
import os, sys
import pytest
from gpu_check.notes import Failed
from splatfix.core.runner import ProcessRunner

def step(name, **more):
    return lambda test: pytest.mark.step(name, name, 60.0, **more)(test)

@step("good")
def test_good(context, notes):
    notes.expect(True, "one", "shown")

@step("wrong")
def test_wrong(context, notes):
    notes.expect(False, "two", "not shown")
    notes.expect(True, "one", "shown")

@step("crashes")
def test_crashes(context, notes):
    done = context.run([sys.executable, "-c", "import os; os.abort()"], 20)
    raise Failed(done.why())

@step("hangs")
def test_hangs(context, notes):
    done = context.run([sys.executable, "-c", "import time; time.sleep(60)"], 0.3)
    notes.expect(done.ok, "it ends", done.why())

@step("raises")
def test_raises(context, notes):
    raise KeyError("three " * 999)

@step("skips")
def test_skips(context, notes):
    pytest.skip("no source")

@step("silent")
def test_silent(context, notes):
    pass

@step("needs", needs=["wrong"])
def test_needs(context, notes):
    notes.expect(True, "one", "shown")

@step("last")
def test_last(context, notes):
    notes.expect(True, "one", "GPU-a1b2c3d4-0000-1111-2222-333344445555")
"""


@pytest.mark.parametrize("rehearsal", [False, True])
def test_later_steps_run_whatever_happens(
    tmp_path: Path, rehearsal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / f"plan_of_a_test_{rehearsal}"
    plan.mkdir()
    (plan / "__init__.py").touch()
    (plan / "conftest.py").write_text("from gpu_check.conftest import *\n")
    (plan / "test_steps.py").write_text(PLAN)
    monkeypatch.setattr(session, "PLAN", plan / "test_steps.py")
    visit = visit_in(tmp_path, rehearsal=rehearsal)
    session.run(visit, {step.name for step in session.collect()})
    good = "rehearsed" if rehearsal else "passed"
    assert {name: result.outcome.value for name, result in visit.results.items()} == {
        "good": good,
        "wrong": "failed",
        "crashes": "failed",
        "hangs": "failed",
        "raises": "failed",
        "skips": "skipped",
        "silent": "failed",
        "needs": "skipped",
        "last": good,
    }
    problems = {name: "; ".join(result.problems) for name, result in visit.results.items()}
    assert problems["wrong"] == "two: not shown" and len(visit.results["wrong"].claims) == 1
    assert "SIGABRT" in problems["crashes"] and "no answer within" in problems["hangs"]
    assert problems["raises"].startswith("KeyError: 'three three") and len(problems["raises"]) < 500
    assert problems["skips"] == "no source" and "wrong" in problems["needs"]
    assert "a1b2c3d4" not in str(visit.results["last"])
    assert read_record(read_json(tmp_path / "record.json", "the record")) is not None
    assert exit_code_of(list(visit.results.values())) == 1


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SKIPPED, None])
def test_what_a_step_needs_must_have_passed(tmp_path: Path, outcome: Outcome | None) -> None:
    visit = visit_in(tmp_path)
    if outcome is not None:
        visit.ended(passed("first", outcome))
    with pytest.raises(SKIP, match="first"):
        visit.context_for(Step(2, "second", "second", 60.0, needs=("first",)))
    visit.ended(passed("first"))
    visit.context_for(Step(2, "second", "second", 60.0, needs=("first",)))


def test_the_budget_bounds_every_step_and_time_is_kept_for_taking_back(tmp_path: Path) -> None:
    visit = visit_in(tmp_path, seconds=52)
    visit.kept = 45.0
    context = visit.context_for(Step(1, "first", "first", 60.0))
    assert context.deadline - time.monotonic() <= 7.0 and not context.is_own_limit
    last = visit.context_for(Step(2, "take-back", "take-back", 45.0, kept=True))
    assert last.deadline - time.monotonic() > 40 and last.is_own_limit
    visit.until -= 3.0
    with pytest.raises(SKIP, match=SPENT):
        visit.context_for(Step(3, "late", "late", 60.0))


@pytest.mark.parametrize("is_own_limit", [True, False])
def test_a_program_that_hangs_is_ended(tmp_path: Path, is_own_limit: bool) -> None:
    """One that had its own time has failed; one that had less, because the whole plan's was spent, has not."""
    context = visit_in(tmp_path).context.until(time.monotonic() + 0.5, is_own_limit=is_own_limit)
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    if is_own_limit:
        assert context.run(argv, 30).returncode is None
    else:
        with pytest.raises(SKIP, match="the whole plan"):
            context.run(argv, 30)
    assert time.monotonic() - context.deadline < 20


def test_builds_run_beside_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the variants wait for the stack's; what one raised is raised where it is waited for."""
    began: dict[str, float] = {}

    def build(context: Context, notes: Notes, environment: str, *arguments: str) -> None:
        began[environment] = time.monotonic()
        time.sleep(0.3)
        if environment == "gsplat":
            raise Failed("no nvcc")
        notes.expect(True, environment, "built")

    monkeypatch.setattr(install, "environment", build)
    visit = visit_in(tmp_path)
    visit.begin_builds(["stack", "mip-splatting", "gsplat"])
    assert visit.built("mip-splatting").claims == [Claim("mip-splatting", "built")]
    assert began["mip-splatting"] - began["stack"] >= 0.3 > began["gsplat"] - began["stack"]
    with pytest.raises(Failed):
        visit.built("gsplat")
    visit.close()


def test_serial_numbers_stay_out_of_records() -> None:
    uuid = "a1b2c3d4-0000-1111-2222-333344445555"
    result = StepResult(1, "one", "One", Outcome.PASSED, claims=(Claim("a", f"GPU-{uuid} and {uuid}"),))
    first, second = without_serials(result).claims[0].shown_by.split(" and ")
    assert first == second and first.startswith("sha256:") and uuid[:8] not in first


def test_a_passing_step_is_a_passed_one() -> None:
    call = pytest.CallInfo.from_call(lambda: None, "call")
    notes = Notes([Claim("a", "b")])
    assert result_of(Step(1, "a", "A", 1.0), notes, call, rehearsal=False).outcome is Outcome.PASSED


def test_the_spread_is_of_all_runs() -> None:
    runs = [{"psnr": 20.0, "memory": 0.0}, {"psnr": 20.2, "memory": 2.0}, {"psnr": 19.9, "memory": 1.0}]
    assert spread_of(runs) == pytest.approx({"psnr": 0.015, "memory": 2.0})


def test_orders_are_asked_where_there_are_two() -> None:
    one, two = ("GPU-aaaaaaaa-1", "GPU-bbbbbbbb-2")
    assert "1,0" not in forms([one])
    assert {"1", "1,0", f"{two},{one}"} <= set(forms([one, two]))
