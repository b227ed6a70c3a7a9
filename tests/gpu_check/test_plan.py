"""A step that fails, crashes, hangs or is skipped is reported as that, later steps run, and time is kept for the last."""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from splatfix.core.files import read_json

from . import needs
from .context import Context
from .plan import OF_COMPILED, OF_OTHERS, PLAN, chosen
from .record import Claim, Failed, Notes, Outcome, StepResult, read_record, without_serials
from .steps import install
from .steps.train import spread_of
from .steps.visible import forms
from .visit import SPENT, Step, Visit

SKIP = pytest.skip.Exception
SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


def visit_in(folder: Path, *, seconds: float = 100.0, rehearsal: bool = False) -> Visit:
    context = Context(str(folder), str(folder), {}, rehearsal)
    return Visit(context, {"gpu": "a card"}, until=time.monotonic() + seconds)


def step(name: str, run: Callable[[Context, Notes], object], **more: object) -> Step:
    return Step(name, name, 60.0, run, **more)  # type: ignore[arg-type]


def good(_: Context, notes: Notes) -> None:
    notes.expect(True, "one", "GPU-a1b2c3d4-0000-1111-2222-333344445555")


def test_the_plan_is_in_order() -> None:
    names = [step.name for step in PLAN]
    assert len(set(names)) == len(names)
    assert [step.number for step in PLAN] == list(range(1, len(PLAN) + 1))
    for index, step in enumerate(PLAN):
        assert set(step.needs) <= set(names[:index]), step.name
    assert [step.name for step in PLAN if step.kept] == ["take-back"] == names[-1:]
    wants = {want for step in PLAN for want in step.wants}
    assert wants <= {*needs.MORE, *needs.TOOLS} and needs.NVCC in wants
    assert {f"install-{name}" for name in install.JOBS} <= set(names)
    assert [step.name for step in chosen(["seed"])] == ["install-stack", "train-inria", "seed"]


def test_what_needs_no_build_comes_first_and_nothing_is_built_beside_what_is_timed() -> None:
    first = list(itertools.takewhile(lambda step: step.alone, PLAN))
    assert [step.name for step in first][:5] == ["facts", "compile", "kernels", "large", "install-dropins"]
    assert not {want for step in first for want in step.wants}.intersection(needs.TOOLS)
    timed = {step.name for step in PLAN if step.name.startswith("train-")} | {"large", "seed", "sizes"}
    assert timed <= {step.name for step in PLAN if step.alone}


def test_every_test_for_a_gpu_is_a_part() -> None:
    room = Path(__file__).parents[1]
    marked = {
        str(path.relative_to(room))
        for path in room.rglob("test_*.py")
        if "pytest.mark.gpu" in path.read_text(encoding="utf-8") and path.parent != Path(__file__).parent
    }
    made_on_a_gpu = {"kernels/test_rasterizer_golden.py"}
    assert marked - made_on_a_gpu <= {*OF_COMPILED, *OF_OTHERS} <= marked


def wrong(_: Context, notes: Notes) -> None:
    notes.expect(False, "two", "not shown")
    notes.expect(True, "one", "shown")


def crashes(context: Context, _: Notes) -> None:
    raise Failed(context.run([sys.executable, "-c", "import os; os.abort()"], 20).why())


def hangs(context: Context, notes: Notes) -> None:
    done = context.run(SLEEPS, 0.1)
    notes.expect(done.ok, "it ends", done.why())


def raises(_: Context, __: Notes) -> None:
    raise KeyError("three " * 999)


STEPS = (
    step("good", good),
    step("wrong", wrong),
    step("crashes", crashes),
    step("hangs", hangs),
    step("raises", raises),
    step("skips", lambda *_: pytest.skip("no source")),
    step("silent", lambda *_: None),
    step("needs", good, needs=("wrong",)),
    step("needs skipped", good, needs=("skips",)),
    step("needs unchosen", good, needs=("another",)),
    step("needs good", good, needs=("good",)),
)
ENDINGS = {
    "good": ("", ""),
    "wrong": ("failed", "two: not shown"),
    "crashes": ("failed", "SIGABRT"),
    "hangs": ("failed", "no answer within"),
    "raises": ("failed", "KeyError: 'three three"),
    "skips": ("skipped", "no source"),
    "silent": ("failed", "showed nothing"),
    "needs": ("skipped", "wrong, which failed"),
    "needs skipped": ("skipped", "skips, which was skipped"),
    "needs unchosen": ("skipped", "another, which was skipped"),
    "needs good": ("", ""),
}


@pytest.mark.parametrize("rehearsal", [False, True])
def test_later_steps_run_whatever_happens(tmp_path: Path, rehearsal: bool) -> None:
    visit = visit_in(tmp_path, rehearsal=rehearsal)
    for one in STEPS:
        visit.perform(one)
    for name, (outcome, problem) in ENDINGS.items():
        result = visit.results[name]
        assert result.outcome.value == (outcome or ("rehearsed" if rehearsal else "passed"))
        assert problem in "; ".join(result.problems) and len(str(result.problems)) < 500
        assert "a1b2c3d4" not in str(result)
    assert len(visit.results["wrong"].claims) == 1
    assert read_record(read_json(tmp_path / "record.json", "the record")).exit_code == 1


def test_the_budget_bounds_every_step_and_time_is_kept_for_taking_back(tmp_path: Path) -> None:
    visit, contexts = visit_in(tmp_path, seconds=52), []
    last = step("take-back", lambda context, _: contexts.append(context), kept=True)
    visit.begin([last, step("first", good)])
    assert visit.kept == 60
    visit.kept = 45.0
    visit.perform(step("first", lambda context, _: contexts.append(context)))
    visit.perform(last)
    first, kept = contexts
    assert first.deadline - time.monotonic() <= 7.0 and not first.is_own_limit
    assert kept.deadline - time.monotonic() > 40
    visit.until -= 3.0
    assert visit.perform(step("late", good)).problems == (SPENT,)


@pytest.mark.parametrize("is_own_limit", [True, False])
def test_a_program_that_hangs_is_ended(tmp_path: Path, is_own_limit: bool) -> None:
    """One that had its own time has failed; one that had less, because the whole plan's was spent, has not."""
    context = visit_in(tmp_path).context.until(time.monotonic() + 0.2, is_own_limit=is_own_limit)
    if is_own_limit:
        assert context.run(SLEEPS, 30).returncode is None
    else:
        with pytest.raises(SKIP, match="the whole plan"):
            context.run(SLEEPS, 30)
    assert time.monotonic() - context.deadline < 20


@pytest.fixture
def visit_that_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Visit, list[str]]]:
    """A visit with three builds that take a moment, and what happened in it, in order."""
    happened: list[str] = []

    def build(context: Context, notes: Notes, environment: str, *arguments: str) -> None:
        happened.append(f"{environment} begins")
        time.sleep(0.1)
        happened.append(f"{environment} ends")
        if environment == "gsplat":
            raise Failed("no nvcc")
        notes.expect(True, environment, "built")

    monkeypatch.setattr(install, "environment", build)
    visit = visit_in(tmp_path)
    visit.lacking = {"install-taming-3dgs": "no nvcc is here"}
    visit.begin(PLAN)
    yield visit, happened
    visit.close()


def test_builds_begin_with_the_first_step_that_is_not_timed(
    visit_that_builds: tuple[Visit, list[str]],
) -> None:
    """Those of the variants wait for the stack's, a timed step for all; what one raised is raised where it is waited for."""
    visit, happened = visit_that_builds

    def timed(context: Context, notes: Notes) -> None:
        happened.append("timed")
        notes.expect(True, "times", "taken")

    visit.perform(step("first", timed, alone=True))
    assert happened == ["timed"]
    results = {
        one.name: visit.perform(one) for one in PLAN if one.name.startswith("install-") and not one.alone
    }
    assert results["install-mip-splatting"].claims == (Claim("mip-splatting", "built"),)
    assert results["install-gsplat"].outcome is Outcome.FAILED
    assert results["install-taming-3dgs"].problems == ("no nvcc is here",)
    assert happened.index("stack ends") < happened.index("mip-splatting begins")
    visit.perform(step("last", timed, alone=True))
    assert happened[-1] == "timed" and "gsplat ends" in happened and "taming-3dgs begins" not in happened


ENDLESS = """
import sys, time
sys.path[:0] = [{root!r}, {tests!r}]
from gpu_check.test_plan import good, step, visit_in
visit = visit_in(__import__("pathlib").Path({folder!r}))
for number in range(10**6):
    visit.perform(step(f"{{number}}", good))
"""


def test_a_visit_that_is_killed_leaves_what_had_ended(tmp_path: Path) -> None:
    room = Path(__file__).parents[1]
    code = ENDLESS.format(root=str(room.parent), tests=str(room), folder=str(tmp_path))
    for steps in (1, 4):
        child = subprocess.Popen([sys.executable, "-c", code])
        record = tmp_path / "record.json"
        while not record.exists() or len(read_record(read_json(record, "the record")).steps) < steps:
            assert child.poll() is None
            time.sleep(0.01)
        child.kill()
        child.wait()
        left = read_record(read_json(record, "the record"))
        assert len(left.steps) >= steps and left.exit_code == 0
        assert len((tmp_path / "table.md").read_text().splitlines()) > steps
        record.unlink()


def test_serial_numbers_stay_out_of_records() -> None:
    uuid = "a1b2c3d4-0000-1111-2222-333344445555"
    result = StepResult(1, "one", "One", Outcome.PASSED, claims=(Claim("a", f"GPU-{uuid} and {uuid}"),))
    first, second = without_serials(result).claims[0].shown_by.split(" and ")
    assert first == second and first.startswith("sha256:") and uuid[:8] not in first


def test_the_spread_is_of_all_runs() -> None:
    runs = [{"psnr": 20.0, "memory": 0.0}, {"psnr": 20.2, "memory": 2.0}, {"psnr": 19.9, "memory": 1.0}]
    assert spread_of(runs) == pytest.approx({"psnr": 0.015, "memory": 2.0})


def test_orders_are_asked_where_there_are_two() -> None:
    one, two = ("GPU-aaaaaaaa-1", "GPU-bbbbbbbb-2")
    assert "1,0" not in forms([one])
    assert {"1", "1,0", f"{two},{one}"} <= set(forms([one, two]))
