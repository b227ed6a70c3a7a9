"""A visit to a GPU: the time that each step has within that of the whole, builds beside the rest, and the record."""

import datetime
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

import splatfix
from splatfix.core.codec import to_json
from splatfix.core.files import write_json, write_text
from splatfix.core.runner import ProcessRunner

from .context import ROOT, Context
from .record import (
    SCHEMA_VERSION,
    Notes,
    Outcome,
    Record,
    StepResult,
    exit_code_of,
    on_one_line,
    table,
    without_serials,
)
from .steps import install

BUDGET = 540.0
"""Seconds for the whole."""
SHORTEST = 5.0
"""Seconds; a step is not begun with less."""
SPENT = "the time for the whole plan was spent before its turn"


@dataclass(frozen=True)
class Step:
    """One step of the plan."""

    name: str
    title: str
    limit: float
    """Seconds, for hanging rather than for measuring."""
    run: Callable[[Context, Notes], None]
    needs: tuple[str, ...] = ()
    """Steps without whose success this one shows nothing."""
    wants: tuple[str, ...] = ()
    """What must be there beside what every step needs; see ``needs``."""
    alone: bool = False
    """It is timed: nothing is built beside it."""
    kept: bool = False
    """Its limit is kept for it at the end of the whole."""
    number: int = 0


class Visit:
    """``until``: when the whole must have ended, by ``time.monotonic``; a rehearsal has no limit.

    ``lacking``: by the names of steps, what they want and this machine lacks, in a line.
    """

    def __init__(
        self,
        context: Context,
        machine: dict[str, str],
        remarks: tuple[str, ...] = (),
        until: float = math.inf,
        lacking: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.context = context
        self.machine = machine
        self.remarks = remarks
        self.until = until
        self.lacking = lacking
        self.kept = 0.0
        """Seconds that are left for what must run at the end."""
        self._to_build: list[str] = []
        self.results: dict[str, StepResult] = {}
        self._began = time.monotonic()
        self._date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        commit = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
        self._commit = ProcessRunner().run(commit, timeout=10).stdout.strip()
        # Builds share the cores among themselves; a rehearsal has few, and nothing there waits for a GPU.
        self._pool = ThreadPoolExecutor((os.cpu_count() or 1) if context.rehearsal else 8)

    def begin(self, steps: Iterable[Step]) -> None:
        """Take note of the installations among the steps and of what time must be kept."""
        steps = list(steps)
        self.kept = sum(step.limit for step in steps if step.kept)
        names = [step.name.removeprefix("install-") for step in steps if not self.lacking.get(step.name)]
        self._to_build = [name for name in names if name in install.JOBS]

    def _begin_builds(self) -> None:
        """Start the installations from sources, all at once: compiling takes long, and needs no GPU."""
        for name in self._to_build:
            self.context.builds[name] = self._pool.submit(self._build, name)
        self._to_build = []

    def _build(self, environment: str) -> Notes:
        job = install.JOBS[environment]
        if job.after in self.context.builds:
            # the stack comes first to the cores, for most of the steps need it
            self.context.builds[job.after].exception()
        notes = Notes()
        install.environment(self._within(job.limit, self.kept), notes, environment, *job.arguments)
        return notes

    def close(self) -> None:
        """Let no thread outlive the visit."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def perform(self, step: Step) -> StepResult:
        """Run a step and write down how it ended, however it did.

        The first that is not timed begins the builds; one that is timed waits for their end.
        """
        if not step.alone:
            self._begin_builds()
        elif self.context.builds:
            wait(self.context.builds.values(), max(self.until - time.monotonic() - self.kept, 0.0))
        notes, began = Notes(), time.monotonic()
        outcome = Outcome.REHEARSED if self.context.rehearsal else Outcome.PASSED
        try:
            step.run(self._context_for(step), notes)
            if not notes.claims and not notes.problems:
                notes.problems.append("it ended and showed nothing")
        except pytest.skip.Exception as reason:
            outcome, notes.problems = Outcome.SKIPPED, [str(reason)]
        except Exception as error:  # noqa: BLE001 - the next step is run
            notes.problems.append(on_one_line(f"{type(error).__name__}: {error}"))
        if notes.problems and outcome is not Outcome.SKIPPED:
            outcome = Outcome.FAILED
        seconds = round(time.monotonic() - began, 1)
        result = StepResult(
            step.number,
            step.name,
            step.title,
            outcome,
            seconds,
            tuple(notes.claims),
            tuple(notes.problems),
            notes.numbers,
        )
        self.ended(result)
        return result

    def _context_for(self, step: Step) -> Context:
        """With the time that the step has; skips it where a step that it needs did not pass, or the time is spent."""
        if self.lacking.get(step.name):
            pytest.skip(self.lacking[step.name])
        for name in step.needs:
            outcome = self.results[name].outcome if name in self.results else Outcome.SKIPPED
            if outcome in (Outcome.FAILED, Outcome.SKIPPED):
                pytest.skip(
                    f"it needs the step {name}, which {'was ' * (outcome is Outcome.SKIPPED)}{outcome.value}"
                )
        return self._within(step.limit, 0.0 if step.kept else self.kept)

    def _within(self, limit: float, kept: float) -> Context:
        """With so many seconds, or what is left of the whole."""
        limit *= self.context.patience
        left = min(limit, self.until - time.monotonic() - kept)
        if left < SHORTEST:
            pytest.skip(SPENT)
        return self.context.until(time.monotonic() + left, is_own_limit=left == limit)

    def ended(self, result: StepResult) -> None:
        """Write the record anew, so that a visit that is cut off leaves what it had seen."""
        self.results[result.name] = without_serials(result)
        record, out = self.record(), Path(self.context.out)
        write_text(out / "table.md", table(record))
        write_json(out / "record.json", to_json(record))

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
