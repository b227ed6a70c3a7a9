"""Findings as data: one judgement each, with the evidence it stands on and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial

from splatfix.core.step import Step, say


class Status(str, Enum):
    """What a check says. Unknown is not bad: a check that lacks a fact never says pass and never says fail."""

    PASS = "pass"  # a status  # nosec B105
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIP = "skip"
    CRASH = "crash"


@dataclass(frozen=True)
class Evidence:
    """One fact a finding stands on: its name, its value in words, and how it was learned."""

    name: str
    value: str
    found_via: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a check yields; the runner makes a :class:`Finding` of it."""

    status: Status
    summary: str
    """One line."""
    subject: str = ""
    """What it is about when a check speaks of several things: a GPU, a file, a toolkit."""
    evidence: tuple[Evidence, ...] = ()
    remedy: tuple[Step, ...] = ()
    link: str = ""


@dataclass(frozen=True)
class Finding(Outcome):
    """The outcome of one check on one subject."""

    code: str = ""
    """Of the check: kebab-case and stable; ``splatfix checks show CODE`` explains it."""
    family: str = ""
    """Of the check: what it looks at, as ``driver`` or ``toolkit``."""


def outcome(
    status: Status,
    summary: str,
    *,
    subject: str = "",
    evidence: Evidence | Iterable[Evidence] = (),
    remedy: str | Step | Iterable[str | Step] = (),
    link: str = "",
) -> Outcome:
    """An outcome whose status depends on something. Text in ``remedy`` is a step that only a person can take."""
    facts = (evidence,) if isinstance(evidence, Evidence) else tuple(evidence)
    steps = (remedy,) if isinstance(remedy, (str, Step)) else tuple(remedy)
    todo = tuple(say(step) if isinstance(step, str) else step for step in steps)
    return Outcome(status, summary, subject, facts, todo, link)


ok = partial(outcome, Status.PASS)
"""What was looked at is as it should be."""
warn = partial(outcome, Status.WARN)
"""It may fail, or works less well than it could."""
fail = partial(outcome, Status.FAIL)
"""It does not work, or will not."""
unknown = partial(outcome, Status.UNKNOWN)
"""A fact is missing, so nothing can be said."""
skip = partial(outcome, Status.SKIP)
"""It does not matter here."""
