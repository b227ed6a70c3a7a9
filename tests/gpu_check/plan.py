"""Runs the steps: each in a child of its own with its own limit, so that none can end the others."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splatfix.core.codec import CodecError, from_json
from splatfix.core.runner import ProcessRunner

from .record import Claim, Outcome, StepResult

SHORTEST = 5.0
"""Seconds; a step is not begun with less."""

_LONGEST = 400


class Skip(Exception):
    """The step cannot be run here; the message says why."""


@dataclass
class Notes:
    """What a step writes down while it runs."""

    claims: list[Claim] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def expect(self, good: bool, what: str, shown_by: str) -> bool:
        """A claim where it holds, a problem where it does not."""
        if good:
            self.claims.append(Claim(what, _short(shown_by)))
        else:
            self.problems.append(_short(f"{what}: {shown_by}"))
        return good


@dataclass(frozen=True)
class Step:
    """One subject."""

    name: str
    title: str
    limit: float
    """Seconds."""
    run: Callable[[Any, Notes], None]
    needs: tuple[str, ...] = ()
    """Steps without whose success this one shows nothing."""
    after: tuple[str, ...] = ()
    """Steps that must have ended, however."""
    beside: bool = False
    """Others run meanwhile: it compiles most of the time."""
    wants: tuple[str, ...] = ()
    """What must be there beside what every step needs; see ``needs``."""
    kept: bool = False
    """Its limit is kept for it at the end of the whole."""


Attempt = Callable[[Step, float], StepResult]


def run_plan(
    steps: Sequence[Step],
    attempt: Attempt,
    until: float,
    ended: Callable[[StepResult], None],
    workers: int = 8,
) -> list[StepResult]:
    """Every step in order; those that run ``beside`` are begun at their turn and waited for by who needs them.

    Args:
        attempt: runs a step within so many seconds.
        until: when the whole must have ended, by ``time.monotonic``.
        ended: called with each result as it comes, one at a time.
        workers: how many may run ``beside`` at a time.
    """
    results: dict[str, StepResult] = {}
    running: dict[str, Future[None]] = {}
    writing = threading.Lock()
    kept = sum(step.limit for step in steps if step.kept)

    def note(result: StepResult) -> None:
        with writing:
            results[result.name] = result
            ended(result)

    def run(number: int, step: Step) -> None:
        left = min(step.limit, until - time.monotonic() - (0.0 if step.kept else kept))
        if left < SHORTEST:
            note(_skipped(number, step, "the time for the whole plan was spent before its turn"))
        else:
            note(attempt(step, left))

    with ThreadPoolExecutor(max_workers=workers) as pool:
        for number, step in enumerate(steps, 1):
            for name in (*step.needs, *step.after):
                if name in running:
                    running[name].result()
            lost = [results[name] for name in step.needs if not _good(results[name])]
            if lost:
                why = f"it needs the step {lost[0].name}, which {_ended(lost[0])}"
                note(_skipped(number, step, why))
            elif step.beside:
                running[step.name] = pool.submit(run, number, step)
            else:
                run(number, step)
        for future in running.values():
            future.result()
    return [results[step.name] for step in steps]


def _good(result: StepResult) -> bool:
    return result.outcome in (Outcome.PASSED, Outcome.REHEARSED)


def _ended(result: StepResult) -> str:
    return "failed" if result.outcome is Outcome.FAILED else "was skipped"


def _skipped(number: int, step: Step, why: str, seconds: float = 0.0) -> StepResult:
    return StepResult(number, step.name, step.title, Outcome.SKIPPED, seconds, problems=(why,))


def attempt_in_child(
    step: Step, number: int, argv: Sequence[str], answer: Path, limit: float, *, rehearsal: bool
) -> StepResult:
    """Run a step's own child, which writes its answer into a file; a child that crashes or hangs has failed."""
    started = time.monotonic()
    answer.unlink(missing_ok=True)
    done = ProcessRunner().run(argv, timeout=limit)
    seconds = round(time.monotonic() - started, 1)

    def failed(why: str, numbers: Mapping[str, Any] | None = None) -> StepResult:
        said = done.stderr.strip().splitlines()[-15:]
        kept = {**(numbers or {}), **({"stderr": said} if said else {})}
        return StepResult(
            number, step.name, step.title, Outcome.FAILED, seconds, problems=(why,), numbers=kept
        )

    if done.returncode is None and seconds >= limit < step.limit:
        return _skipped(number, step, "the time for the whole plan was spent while it ran", seconds)
    if not done.ok:
        return failed(done.why())
    try:
        document = json.loads(without_serials(answer.read_text(encoding="utf-8")))
        claims = from_json(tuple[Claim, ...], document["claims"])
        problems = from_json(tuple[str, ...], document["problems"])
        skipped, numbers = document["skipped"], document["numbers"]
    except (OSError, ValueError, KeyError, CodecError) as error:
        return failed(f"it ended without a readable answer: {type(error).__name__}: {error}")
    if skipped:
        outcome, problems = Outcome.SKIPPED, (skipped,)
    elif problems:
        outcome = Outcome.FAILED
    elif not claims:
        return failed("it ended and showed nothing", numbers)
    else:
        outcome = Outcome.REHEARSED if rehearsal else Outcome.PASSED
    return StepResult(number, step.name, step.title, outcome, seconds, claims, problems, numbers)


def answer_of(run: Callable[[Any, Notes], None], context: Any) -> dict[str, Any]:
    """What a step's child writes: its notes, with an exception as a problem."""
    notes, skipped = Notes(), ""
    try:
        run(context, notes)
    except Skip as why:
        skipped = str(why)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in a step is its result
        notes.problems.append(_short(f"{type(error).__name__}: {error}"))
    return {
        "skipped": skipped,
        "claims": [{"what": claim.what, "shown_by": claim.shown_by} for claim in notes.claims],
        "problems": notes.problems,
        "numbers": notes.numbers,
    }


_UUID = re.compile(r"(?:GPU-)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


def without_serials(text: str) -> str:
    """With the UUIDs of GPUs hashed, as a certificate has them: a record is public."""
    return _UUID.sub(
        lambda found: f"sha256:{hashlib.sha256(f'GPU-{found[1]}'.encode()).hexdigest()[:16]}", text
    )


def _short(text: str) -> str:
    """On one line, and without the tensors that some errors print."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."
