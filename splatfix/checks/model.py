"""Findings as data: one judgement each, with the evidence it stands on and the way out."""

from __future__ import annotations

from dataclasses import dataclass, field
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
class Finding:
    """The outcome of one check on one subject."""

    code: str
    """Kebab-case and stable; ``splatfix checks show CODE`` explains it."""
    status: Status
    summary: str
    """One line."""
    subject: str = ""
    """What it is about when a check speaks of several things: a GPU, a file, a toolkit."""
    evidence: tuple[Evidence, ...] = ()
    remedy: tuple[Step, ...] = ()
    link: str = ""


@dataclass(frozen=True)
class Goal:
    """What the person wants the machine to be good for, beside the facts."""

    targets: tuple[str, ...] = field(default_factory=tuple)
    """Architectures asked for (``sm_120``); empty means the machine's own GPUs."""
