"""From the run of a stack's own trainer to its certificate: verdict, levels and what they say."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from splatfix.certify.levels import built_for, level_resolved
from splatfix.certify.model import Certificate, Criterion, Mend, Outcome, SceneRun, TestedStack, Verdict
from splatfix.certify.run import environment_of
from splatfix.certify.threads import Threads
from splatfix.checks import run_checks
from splatfix.context import Goal, make_context
from splatfix.core.proof import Rung, RungName
from splatfix.core.step import Command
from splatfix.core.words import counted
from splatfix.facts import Facts

TRAIN = "train.py"
_NOT_ENDED = "the trainer was not run to its end"
_NOTHING_OF_CUDA = "a rehearsal on the CPU shows nothing about CUDA"


@dataclass(frozen=True)
class StackRequest:
    """What to certify, as the rooms on the left prepared it."""

    python: str
    checkout: Path
    source: Path
    """What is run: the checkout, or a scratch copy that was mended."""
    name: str
    key: str
    """Of the stack in the tables; "" where it is none of them."""
    remote: str
    commit: str
    scene: Path
    out: Path
    device: str
    iterations: int
    resolution: int | None = None
    images: str = ""
    extensions: tuple[str, ...] = ()
    dropins: Path | None = None
    """A folder with them, to be searched first."""
    dropin_names: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ()
    standins: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    """Modules of others that the checkout imports and cannot do without."""
    mends: tuple[Mend, ...] = ()
    extra: tuple[str, ...] = ()
    """The user's own words for train.py."""
    resumes: tuple[str, ...] = ()
    """Places that load checkpoints in a way that torch may refuse."""
    threads: Threads | None = None
    """That the trainer gets; None on a GPU, where it has as many as it takes."""
    repeat: Command = field(default_factory=lambda: Command(()))
    targets: tuple[str, ...] = ()
    """In a rehearsal: the GPU architectures that installed extensions are judged for."""

    @property
    def rehearsed(self) -> bool:
        """On the CPU."""
        return self.device == "cpu"


@dataclass(frozen=True)
class Started:
    """What is known of a run however it ends."""

    words: tuple[str, ...] = ()
    """What followed train.py."""
    weights: tuple[str, ...] = ()
    """Pretrained weights that could not be had."""
    mends: tuple[Mend, ...] = ()
    """What stopped it, and was passed over so that it went on."""
    notes: tuple[str, ...] = ()
    """Reservations."""


def conclude(
    request: StackRequest, facts: Facts, run: SceneRun | None, started: Started, seconds: float
) -> Certificate:
    """The certificate of a run; of one that has not come to its end where that is None."""
    runs = (run,) if run else ()
    proof = tuple(_levels(request, facts, run))
    failed = [item for one in runs for item in one.criteria if item.outcome is Outcome.FAILED]
    reasons = tuple(f"{item.code}: {item.measured.rstrip('.')}. {item.why}".rstrip() for item in failed)
    verdict = Verdict.REHEARSED if request.rehearsed else Verdict.CERTIFIED
    reasons += tuple(
        f"built: {rung.shown_by}" for rung in proof if rung.name is RungName.BUILT and rung.reached is False
    )
    if reasons:
        verdict = Verdict.NOT_CERTIFIED
    elif run is None or run.passed is None:
        verdict = Verdict.UNDETERMINED
    stack = TestedStack(
        name=request.name,
        folder=str(request.checkout),
        remote=request.remote,
        commit=request.commit,
        command=Command((request.python, str(request.checkout / TRAIN), *started.words)),
        rehearsed=request.rehearsed,
        dropins=request.dropin_names,
        mends=(*request.mends, *started.mends),
        weights=started.weights,
    )
    notes = [*_notes(started.weights), *started.notes]
    scenes = tuple(
        replace(one, result={**one.result, "notes": [*one.result.get("notes", ()), *notes]}) for one in runs
    )
    return Certificate(
        verdict=verdict,
        summary=_summary(verdict, request, run),
        reasons=reasons,
        suite=request.scene.name,
        renderer=", ".join(request.extensions) or "its own",
        device=request.device,
        proof=proof,
        kernels=(),
        scenes=scenes,
        environment={
            **environment_of(facts, runs, request.device),
            "stack": ", ".join(filter(None, (request.name, request.remote, request.commit))),
            "training": stack.command.shell(windows=False),
            **({"drop-ins": ", ".join(request.dropin_names)} if request.dropin_names else {}),
            **({"threads": request.threads.words()} if request.threads else {}),
        },
        repeat=request.repeat,
        issued=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        seconds=seconds,
        stack=stack,
    )


def _notes(weights: tuple[str, ...]) -> list[str]:
    if not weights:
        return []
    return [f"pretrained weights could not be loaded, random ones took their place: {'; '.join(weights)}"]


def _levels(request: StackRequest, facts: Facts, run: SceneRun | None) -> Iterator[Rung]:
    goal = Goal(device="" if request.rehearsed else request.device)
    yield level_resolved(run_checks(make_context(facts, goal)), request.device)
    natives = [name for name in request.extensions if not request.rehearsed]
    yield built_for(facts, request.targets, request.device) or Rung(
        RungName.BUILT,
        None,
        f"not looked at: {', '.join(natives)}" if natives else "drop-ins ran, in plain PyTorch",
        needed=bool(natives),
    )
    told = run.result.get("implementations", {}) if run else {}
    ran = sorted(name for name, row in told.items() if "module" in row)
    yield Rung(
        RungName.LOADS,
        bool(ran) if run else None,
        f"imported and called: {', '.join(ran)}" if ran else "no extension was called" if run else _NOT_ENDED,
    )
    trained = _trained(run) if run else (None, _NOT_ENDED)
    if request.rehearsed:
        yield Rung(RungName.REHEARSED, *trained)
        above = _NOTHING_OF_CUDA
        yield Rung(RungName.COMPUTES, None, above)
        yield Rung(RungName.TRAINS, None, above)
    else:
        yield Rung(RungName.REHEARSED, None, "it ran on the GPU", needed=False)
        yield Rung(
            RungName.COMPUTES, None, "kernels were not compared with references; splatfix verify does that"
        )
        yield Rung(RungName.TRAINS, *trained)
    yield Rung(RungName.REPRODUCES, None, "no baseline to compare with")


def _trained(run: SceneRun) -> tuple[bool | None, str]:
    failed = [item.code for item in run.criteria if item.outcome is Outcome.FAILED]
    if failed:
        return False, f"criteria failed: {', '.join(failed)}"
    if run.passed is None:
        return None, f"{_open(run)}: {counted(run.result.get('iterations') or 0, 'iteration')}"
    psnr = run.result.get("heldout", {}).get("psnr")
    quality = "held-out quality was not measured" if psnr is None else f"held-out PSNR {psnr:.2f} dB"
    return (
        True,
        f"{counted(run.result['iterations'], 'iteration')} of its own trainer on {run.scene}; {quality}",
    )


def _summary(verdict: Verdict, request: StackRequest, run: SceneRun | None) -> str:
    what = f"{request.name}'s own trainer"
    if run is None:
        return f"{what} was not run to its end on {request.device}: nothing of it was judged."
    done = counted(run.result.get("iterations") or 0, "iteration")
    how = "was rehearsed on the CPU" if request.rehearsed else f"ran on {request.device}"
    last = " CUDA and its kernels were not verified." if request.rehearsed else ""
    if verdict is Verdict.NOT_CERTIFIED:
        failed = counted(sum(item.outcome is Outcome.FAILED for item in run.criteria), "criterion")
        failed = failed.replace("criterions", "criteria")
        return f"{what} {how} for {done}, and does not pass: {failed} failed.{last}"
    if verdict is Verdict.UNDETERMINED:
        return f"{what} {how} for {done}, {_open(run)}.{last}"
    unmeasured = _unmeasured(run.criteria)
    return f"{what} {how} for {done} on {run.scene}, and meets every criterion that was measured ({unmeasured}).{last}"


def _open(run: SceneRun) -> str:
    """Why a run without a failure is no success."""
    seen = next((item for item in run.criteria if item.code == "observed"), None)
    if seen is None or seen.outcome is Outcome.MET:
        return "too short to judge"
    return f"and could not be observed ({seen.measured})"


def _unmeasured(criteria: tuple[Criterion, ...]) -> str:
    met = sum(item.outcome is Outcome.MET for item in criteria)
    return f"{met} met, {len(criteria) - met} not measured"
