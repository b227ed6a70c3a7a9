"""Findings as data: one judgement each, with the evidence it stands on and what to do about it."""

from enum import Enum

from msgspec import Struct

from splatfix.core.step import Step


class Status(str, Enum):
    """What a check says. Unknown is not bad: a check that lacks a fact never says pass and never says fail."""

    PASS = "pass"  # a status  # nosec B105
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIP = "skip"
    CRASH = "crash"


class Evidence(Struct, frozen=True):
    """One fact a finding stands on: its name, its value in words, and how it was learned."""

    name: str
    value: str
    found_via: str = ""


class Finding(Struct, frozen=True):
    """What one check says of one subject. :class:`splatfix.checks.registry.Check` makes it."""

    status: Status
    summary: str
    """One line."""
    subject: str = ""
    """What it is about when a check speaks of several things: a GPU, a file, a toolkit."""
    evidence: tuple[Evidence, ...] = ()
    remedy: tuple[Step, ...] = ()
    link: str = ""
    code: str = ""
    """Of the check: kebab-case and stable; ``splatfix diagnose --explain CODE`` explains it."""
    family: str = ""
    """Of the check: what it looks at, as ``driver`` or ``toolkit``."""


class Considered(Struct, frozen=True):
    """An alternative that was considered, and why it was rejected."""

    what: str
    why: str
