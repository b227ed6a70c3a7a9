"""A step that fails, crashes, hangs or is skipped is reported as that, later steps run, and the whole does not end with 0."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from .plan import Notes, Skip, Step, StepResult, answer_of, attempt_in_child, run_plan
from .record import Outcome, exit_code_of
from .steps import STEPS

ANSWER = '{"skipped": "", "claims": [{"what": "a", "shown_by": "b"}], "problems": [], "numbers": {}}'
WRITE = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
CHILDREN = {
    "good": (WRITE, ANSWER),
    "wrong": (WRITE, ANSWER.replace('"problems": []', '"problems": ["not equal"]')),
    "skipped": (WRITE, ANSWER.replace('"skipped": ""', '"skipped": "no source"')),
    "silent": (WRITE, ANSWER.replace('{"what": "a", "shown_by": "b"}', "")),
    "crashes": ("import os; os.abort()", ""),
    "raises": ("raise ValueError('bad luck')", ""),
    "hangs": ("import time; time.sleep(60)", ""),
    "no-answer": ("print('done')", ""),
    "no-json": (WRITE, "Traceback (most recent call last):"),
    "strange": (WRITE, '{"claims": 3, "problems": [], "skipped": "", "numbers": {}}'),
}


def step(name: str, **more: object) -> Step:
    return Step(name, name, 60.0, lambda context, notes: None, **more)  # type: ignore[arg-type]


def attempt(
    folder: Path, name: str, *, rehearsal: bool = False, limit: float = 30.0, own: float = 0.0
) -> StepResult:
    code, said = CHILDREN[name]
    answer = folder / f"{name}.json"
    argv = [sys.executable, "-c", code, str(answer), said]
    tried = replace(step(name), limit=own or limit)
    return attempt_in_child(tried, 1, argv, answer, limit, rehearsal=rehearsal)


@pytest.mark.parametrize(
    ("name", "outcome", "problem"),
    [
        ("good", Outcome.PASSED, ""),
        ("wrong", Outcome.FAILED, "not equal"),
        ("skipped", Outcome.SKIPPED, "no source"),
        ("silent", Outcome.FAILED, "showed nothing"),
        ("crashes", Outcome.FAILED, "SIGABRT"),
        ("raises", Outcome.FAILED, "bad luck"),
        ("no-answer", Outcome.FAILED, "without a readable answer"),
        ("no-json", Outcome.FAILED, "without a readable answer"),
        ("strange", Outcome.FAILED, "without a readable answer"),
    ],
)
def test_how_a_child_ended(tmp_path: Path, name: str, outcome: Outcome, problem: str) -> None:
    result = attempt(tmp_path, name)
    assert result.outcome is outcome
    assert problem in "; ".join(result.problems)


@pytest.mark.parametrize(
    ("own", "outcome", "said"),
    [(0.5, Outcome.FAILED, "no answer within"), (60.0, Outcome.SKIPPED, "the whole plan")],
)
def test_a_child_that_hangs_is_ended(tmp_path: Path, own: float, outcome: Outcome, said: str) -> None:
    """One that had its own time has failed; one that had less, because the whole plan's was spent, has not."""
    began = time.monotonic()
    result = attempt(tmp_path, "hangs", limit=0.5, own=own)
    assert result.outcome is outcome and said in result.problems[0]
    assert time.monotonic() - began < 20


def test_an_answer_of_an_earlier_run_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "crashes.json").write_text(ANSWER)
    assert attempt(tmp_path, "crashes").outcome is Outcome.FAILED


def test_a_rehearsal_is_not_called_passed(tmp_path: Path) -> None:
    assert attempt(tmp_path, "good", rehearsal=True).outcome is Outcome.REHEARSED


def test_later_steps_run_whatever_happens(tmp_path: Path) -> None:
    names = ["good", "crashes", "wrong", "hangs", "skipped", "silent", "good"]
    steps = [step(f"{number}-{name}") for number, name in enumerate(names)]
    seen: list[str] = []

    def run(item: Step, limit: float) -> StepResult:
        name = item.name.partition("-")[2]
        limit = 0.3 if name == "hangs" else limit
        found = attempt(tmp_path, name, limit=limit)
        return StepResult(1, item.name, item.title, found.outcome, problems=found.problems)

    results = run_plan(steps, run, time.monotonic() + 100, lambda result: seen.append(result.name))
    assert seen == [item.name for item in steps]
    assert [item.outcome.value for item in results] == [
        "passed",
        *["failed"] * 3,
        "skipped",
        "failed",
        "passed",
    ]
    assert exit_code_of(results) == 1


def result(item: Step, outcome: Outcome) -> StepResult:
    return StepResult(1, item.name, item.title, outcome, problems=() if outcome is Outcome.PASSED else ("x",))


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SKIPPED])
def test_what_a_step_needs_must_have_passed(outcome: Outcome) -> None:
    steps = [step("first"), step("needs", needs=("first",)), step("after", after=("first",))]
    outcomes = {"first": outcome, "after": Outcome.PASSED}

    def run(item: Step, limit: float) -> StepResult:
        return result(item, outcomes[item.name])

    _, needs, after = run_plan(steps, run, time.monotonic() + 100, lambda item: None)
    assert needs.outcome is Outcome.SKIPPED and "first" in needs.problems[0]
    assert after.outcome is Outcome.PASSED


def test_compiling_runs_beside_the_rest() -> None:
    steps = [step("build", beside=True), step("other"), step("uses", needs=("build",))]
    running: set[str] = set()
    seen: dict[str, set[str]] = {}

    def run(item: Step, limit: float) -> StepResult:
        running.add(item.name)
        time.sleep(0.3 if item.name == "build" else 0.05)
        seen[item.name] = set(running)
        running.remove(item.name)
        return result(item, Outcome.PASSED)

    results = run_plan(steps, run, time.monotonic() + 100, lambda item: None)
    assert "build" in seen["other"] and "build" not in seen["uses"]
    assert [item.name for item in results] == ["build", "other", "uses"]


def test_the_budget_bounds_every_step() -> None:
    limits: dict[str, float] = {}

    def run(item: Step, limit: float) -> StepResult:
        limits[item.name] = limit
        return result(item, Outcome.PASSED)

    run_plan([step("first")], run, time.monotonic() + 20, lambda item: None)
    (late,) = run_plan([step("late")], run, time.monotonic() + 1, lambda item: None)
    assert limits.keys() == {"first"} and limits["first"] <= 20
    assert late.outcome is Outcome.SKIPPED


def test_time_is_kept_for_taking_back() -> None:
    """Whatever ran before: an installation that hangs is ended in time for it."""
    limits: dict[str, float] = {}

    def run(item: Step, limit: float) -> StepResult:
        limits[item.name] = limit
        return result(item, Outcome.PASSED)

    last = replace(step("take-back", after=("hangs", "late")), limit=45.0, kept=True)
    late = step("late", beside=True, after=("hangs",))
    found = run_plan([step("hangs"), late, last], run, time.monotonic() + 52, lambda item: None)
    assert limits["hangs"] <= 7.0 and limits["take-back"] > 40
    (_, *_, end) = found
    assert end.outcome is Outcome.PASSED


def test_a_step_that_waited_has_what_is_left() -> None:
    """One that runs beside others is given its time when it begins, not when it was put in line."""
    limits: dict[str, float] = {}

    def run(item: Step, limit: float) -> StepResult:
        limits[item.name] = limit
        time.sleep(1.0)
        return result(item, Outcome.PASSED)

    steps = [step("first", beside=True), step("second", beside=True)]
    run_plan(steps, run, time.monotonic() + 20, lambda item: None, workers=1)
    assert limits["second"] <= 19.1


def test_serial_numbers_stay_out_of_records(tmp_path: Path) -> None:
    uuid = "a1b2c3d4-0000-1111-2222-333344445555"
    said = ANSWER.replace('"b"', f'"GPU-{uuid} and {uuid}"')
    answer = tmp_path / "answer.json"
    argv = [sys.executable, "-c", WRITE, str(answer), said]
    found = attempt_in_child(step("one"), 1, argv, answer, 30.0, rehearsal=False)
    first, second = found.claims[0].shown_by.split(" and ")
    assert first == second and first.startswith("sha256:") and uuid[:8] not in first


def test_notes_become_an_answer() -> None:
    def fails(context: object, notes: Notes) -> None:
        notes.expect(True, "one", "seen")
        notes.expect(False, "two", "not seen")
        raise KeyError("three " * 999)

    def skips(context: object, notes: Notes) -> None:
        raise Skip("why")

    answer = answer_of(fails, None)
    assert [claim["what"] for claim in answer["claims"]] == ["one"]
    assert answer["problems"][0] == "two: not seen" and len(answer["problems"][1]) < 500
    assert answer["problems"][1].startswith("KeyError: 'three three")
    assert answer_of(skips, None)["skipped"] == "why"


def test_the_plan_is_in_order() -> None:
    names = [item.name for item in STEPS]
    assert len(set(names)) == len(names)
    for place, item in enumerate(STEPS):
        assert {*item.needs, *item.after} <= set(names[:place]), item.name
    assert [item.name for item in STEPS if item.beside] == [
        "install-stack",
        "install-gsplat",
        "visible",
        *(f"install-{name}" for name in ("inria-2024", "mip-splatting", "taming-3dgs")),
    ]
    assert [item.name for item in STEPS if item.kept] == ["take-back"]
