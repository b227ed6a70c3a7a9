"""Findings as data: one judgement each, with the evidence it stands on and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from splatfix.core.step import Step


class Status(str, Enum):
    """What a check says. Unknown is not bad: a check that lacks a fact never says pass and never says fail."""

    PASS = "pass"
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
    evidence: Iterable[Evidence] = (),
    remedy: Iterable[Step] = (),
    link: str = "",
) -> Outcome:
    """An outcome whose status depends on something."""
    return Outcome(status, summary, subject, tuple(evidence), tuple(remedy), link)


def ok(
    summary: str, *, subject: str = "", evidence: Iterable[Evidence] = (), remedy: Iterable[Step] = ()
) -> Outcome:
    """What was looked at is as it should be."""
    return outcome(Status.PASS, summary, subject=subject, evidence=evidence, remedy=remedy)


def warn(
    summary: str,
    *,
    subject: str = "",
    evidence: Iterable[Evidence] = (),
    remedy: Iterable[Step] = (),
    link: str = "",
) -> Outcome:
    """It may fail, or works less well than it could."""
    return outcome(Status.WARN, summary, subject=subject, evidence=evidence, remedy=remedy, link=link)


def fail(
    summary: str,
    *,
    subject: str = "",
    evidence: Iterable[Evidence] = (),
    remedy: Iterable[Step] = (),
    link: str = "",
) -> Outcome:
    """It does not work, or will not."""
    return outcome(Status.FAIL, summary, subject=subject, evidence=evidence, remedy=remedy, link=link)


def unknown(
    summary: str, *, subject: str = "", evidence: Iterable[Evidence] = (), remedy: Iterable[Step] = ()
) -> Outcome:
    """A fact is missing, so nothing can be said."""
    return outcome(Status.UNKNOWN, summary, subject=subject, evidence=evidence, remedy=remedy)


def skip(
    summary: str,
    *,
    subject: str = "",
    evidence: Iterable[Evidence] = (),
    remedy: Iterable[Step] = (),
    link: str = "",
) -> Outcome:
    """It does not matter here."""
    return outcome(Status.SKIP, summary, subject=subject, evidence=evidence, remedy=remedy, link=link)
