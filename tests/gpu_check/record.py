"""What a visit to a GPU leaves: one versioned JSON document, rewritten as each step ends, and a table of it."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

from splatfix.core.codec import CodecError, Spelled, from_json, to_json

SCHEMA_VERSION = 4
"""1 and 2 were flat lists of steps without claims, 3 had no notes."""


class Outcome(str, Enum):
    """How a step ended. Only ``passed`` shows anything of a GPU."""

    PASSED = "passed"
    REHEARSED = "rehearsed"
    """It ran to its end on the CPU with stand-ins."""
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Claim:
    """Something that was seen to hold, and on what evidence."""

    what: str
    shown_by: str


class Failed(Exception):
    """A program that the step cannot go on without; the message says how it ended."""


@dataclass
class Notes:
    """What a step writes down while it runs: what held, what did not, what was measured."""

    claims: list[Claim] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def expect(self, good: bool, subject: str, shown_by: str) -> bool:
        """A claim where it holds, a problem where it does not; a problem fails the step only at its end."""
        if good:
            self.claims.append(Claim(subject, on_one_line(shown_by)))
        else:
            self.problems.append(on_one_line(f"{subject}: {shown_by}"))
        return good


def on_one_line(text: str, longest: int = 400) -> str:
    """Without line breaks, and without the tensors that some errors print."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[:longest]} ..."


@dataclass(frozen=True)
class StepResult:
    """How one step ended."""

    number: int
    name: str
    title: str
    outcome: Outcome
    seconds: float = 0.0
    claims: tuple[Claim, ...] = ()
    problems: tuple[str, ...] = ()
    """What did not hold; of a step that was skipped, why."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Everything that was measured, for later comparison."""


@dataclass(frozen=True)
class Record:
    """A whole visit."""

    schema_version: int
    kind: str
    rehearsal: bool
    date: Annotated[str, Spelled(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", "a time in UTC")]
    splatfix: str
    commit: str
    machine: Mapping[str, str]
    """GPU, driver, torch, CUDA, Python."""
    seconds: float
    exit_code: int
    steps: tuple[StepResult, ...]
    notes: tuple[str, ...] = ()
    """What was given and not used, such as a folder in GPU_SOURCES of an unknown name."""


def read_record(document: Any) -> Record:
    """A record as it was written.

    Raises:
        CodecError: another schema, or a document that contradicts itself: a rehearsal that calls a step passed, a step
            that passed and shows nothing, an exit code that its steps do not give.
    """
    record = from_json(Record, document)
    if (record.schema_version, record.kind) != (SCHEMA_VERSION, "gpu-check"):
        raise CodecError(
            f"$: gpu-check {SCHEMA_VERSION} expected, {record.kind} {record.schema_version} found"
        )
    good, wrong = Outcome.PASSED, Outcome.REHEARSED
    if record.rehearsal:
        good, wrong = wrong, good
    for index, step in enumerate(record.steps):
        where = f"$.steps[{index}]: {step.outcome.value!r}"
        if step.outcome is wrong:
            raise CodecError(
                f"{where}, which only {'a visit to a GPU' if record.rehearsal else 'a rehearsal'} is"
            )
        if step.outcome is good and (step.problems or not step.claims):
            raise CodecError(f"{where} with problems or without a claim")
        if step.outcome is not good and not step.problems:
            raise CodecError(f"{where} without a reason")
    if record.exit_code != exit_code_of(record.steps):
        raise CodecError(f"$.exit_code: {exit_code_of(record.steps)} expected, {record.exit_code} found")
    return record


_UUID = re.compile(r"(?:GPU-)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


def without_serials(result: StepResult) -> StepResult:
    """With the UUIDs of GPUs hashed, as a certificate has them: a record is public."""

    def hashed(uuid: re.Match[str]) -> str:
        return f"sha256:{hashlib.sha256(f'GPU-{uuid[1]}'.encode()).hexdigest()[:16]}"

    return from_json(StepResult, json.loads(_UUID.sub(hashed, json.dumps(to_json(result)))))


def exit_code_of(steps: Sequence[StepResult]) -> int:
    """0 when every step passed, 1 when one failed, 3 when none failed and one was skipped, or there was none."""
    outcomes = {step.outcome for step in steps}
    if Outcome.FAILED in outcomes:
        return 1
    return 0 if outcomes and Outcome.SKIPPED not in outcomes else 3


def table(record: Record) -> str:
    """What is proven now and what is not, in Markdown."""
    machine = record.machine
    where = machine.get("gpu") or "the CPU"
    head = f"On {where}, driver {machine.get('driver', 'unknown')}, torch {machine.get('torch')}:"
    if record.rehearsal:
        head = f"REHEARSAL on {where} with stand-ins: nothing here says anything about a GPU."
    lines = [head, "", "| # | step | outcome | what was seen |", "|---|---|---|---|"]
    for step in record.steps:
        shown = [f"{claim.what}: {claim.shown_by}" for claim in step.claims]
        shown += [f"NOT: {problem}" for problem in step.problems]
        cell = "<br>".join(shown).replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {step.number} | {step.title} | {step.outcome.value} | {cell} |")
    counts = Counter(step.outcome.value for step in record.steps)
    counted = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    notes = [f"Note: {note}" for note in record.notes]
    last = f"{counted}; {record.seconds:.0f} s; exit code {record.exit_code}"
    return "\n".join([*lines, "", *notes, last, ""])
