"""A visit to a GPU: the time that each step has within that of the whole, builds beside the rest, and the record."""

from __future__ import annotations

import datetime
import math
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import splatfix
from splatfix.core.codec import to_json
from splatfix.core.files import write_json
from splatfix.core.runner import ProcessRunner

from .context import ROOT, Context
from .notes import Notes
from .record import SCHEMA_VERSION, Outcome, Record, StepResult, exit_code_of, without_serials
from .steps import install

SHORTEST = 5.0
"""Seconds; a step is not begun with less."""
SPENT = "the time for the whole plan was spent before its turn"
MARKS = {
    Outcome.PASSED: "ok",
    Outcome.REHEARSED: "rehearsed",
    Outcome.FAILED: "FAILED",
    Outcome.SKIPPED: "skipped",
}


@dataclass(frozen=True)
class Step:
    """What the marker of a test in ``test_visit`` says of it."""

    number: int
    name: str
    title: str
    limit: float
    """Seconds, for hanging rather than for measuring."""
    needs: tuple[str, ...] = ()
    """Steps without whose success this one shows nothing."""
    wants: tuple[str, ...] = ()
    """What must be there beside what every step needs; see ``needs``."""
    kept: bool = False
    """Its limit is kept for it at the end of the whole."""


def steps_of(items: Iterable[pytest.Item]) -> dict[str, Step]:
    """The steps that tests are, in order, by the tests' names."""
    steps: dict[str, Step] = {}
    for item in items:
        marker = item.get_closest_marker("step")
        if marker is None:
            continue
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        name, title, limit = marker.args
        needs = tuple(needed.format(**parameters) for needed in marker.kwargs.get("needs", ()))
        more = {key: value for key, value in marker.kwargs.items() if key != "needs"}
        number = len(steps) + 1
        steps[item.name] = Step(
            number, name.format(**parameters), title.format(**parameters), limit, needs, **more
        )
    return steps


def chosen(steps: Iterable[Step], names: Sequence[str] | None) -> set[str]:
    """The names of the steps to run: all, or the named ones and what they need.

    Raises:
        KeyError: the names that no step has.
    """
    known = {step.name: step for step in steps}
    pending = list(known if names is None else names)
    unknown = [name for name in pending if name not in known]
    if unknown:
        raise KeyError(*unknown)
    selected: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in selected:
            selected.add(name)
            pending += known[name].needs
    return selected


@dataclass
class Visit:
    """``until``: when the whole must have ended, by ``time.monotonic``; a rehearsal has no limit."""

    context: Context
    machine: dict[str, str]
    remarks: tuple[str, ...] = ()
    """For the record: what was given and not used."""
    until: float = math.inf
    kept: float = 0.0
    """Seconds that are left for what must run at the end."""
    results: dict[str, StepResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        commit = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
        self._commit = ProcessRunner().run(commit, timeout=10).stdout.strip()
        # Builds share the cores among themselves; a rehearsal has few, and nothing there waits for a GPU.
        workers = (os.cpu_count() or 1) if self.context.rehearsal else 8
        self._pool = ThreadPoolExecutor(workers)
        self._builds: dict[str, Future[Notes]] = {}

    def context_for(self, step: Step) -> Context:
        """With the time that the step has.

        Raises:
            pytest.skip.Exception: a step that it needs did not pass, or the time is spent.
        """
        for name in step.needs:
            outcome = Outcome.SKIPPED  # also of one that was not chosen
            if name in self.results:
                outcome = self.results[name].outcome
            if outcome is Outcome.FAILED:
                pytest.skip(f"it needs the step {name}, which failed")
            if outcome is Outcome.SKIPPED:
                pytest.skip(f"it needs the step {name}, which was skipped")
        return self.within(step.limit, 0.0 if step.kept else self.kept)

    def within(self, limit: float, kept: float) -> Context:
        """With so many seconds, or what is left of the whole."""
        limit *= self.context.patience
        left = min(limit, self.until - time.monotonic() - kept)
        if left < SHORTEST:
            pytest.skip(SPENT)
        return self.context.until(time.monotonic() + left, is_own_limit=left == limit)

    def begin_builds(self, environments: Sequence[str]) -> None:
        """Start the installations that are among the steps, at once: compiling takes long, and needs no GPU."""
        for environment in environments:
            self._builds[environment] = self._pool.submit(self._build, environment)

    def _build(self, environment: str) -> Notes:
        job = install.JOBS[environment]
        if job.after in self._builds:
            # the stack comes first to the cores, for most of the steps need it
            self._builds[job.after].exception()
        notes = Notes()
        install.environment(self.within(job.limit, self.kept), notes, environment, *job.arguments)
        return notes

    def built(self, environment: str) -> Notes:
        """What an installation showed, once it has ended; raises what it raised."""
        return self._builds[environment].result()

    def close(self) -> None:
        """Let no thread outlive the visit."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def ended(self, result: StepResult) -> None:
        """Write the record anew, so that a visit that is cut off leaves what it had seen; and say a line."""
        self.results[result.name] = without_serials(result)
        write_json(Path(self.context.out) / "record.json", to_json(self.record()))
        problems = ""
        if result.problems:
            problems = f": {'; '.join(result.problems)}"[:400]
        line = (
            f"{result.number:2} {MARKS[result.outcome]:<9} {result.title}, {result.seconds:.0f} s{problems}"
        )
        print(line, file=sys.stderr, flush=True)

    def record(self) -> Record:
        """What was seen so far."""
        done = tuple(self.results.values())
        return Record(
            schema_version=SCHEMA_VERSION,
            kind="gpu-check",
            rehearsal=self.context.rehearsal,
            date=self._date,
            splatfix=splatfix.__version__,
            commit=self._commit,
            machine=self.machine,
            seconds=round(time.monotonic() - self._began, 1),
            exit_code=exit_code_of(done),
            steps=done,
            notes=self.remarks,
        )
