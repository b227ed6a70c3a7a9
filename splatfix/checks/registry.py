"""What a check is, and the decorator that registers one. Which modules hold checks, :mod:`splatfix.checks.catalogue` says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from splatfix.checks.model import Outcome
from splatfix.context import Context
from splatfix.knowledge.breakages import FailureClass, foreseen_by

FAMILIES = (
    "gpu",
    "driver",
    "container",
    "environment",
    "torch",
    "toolkit",
    "compiler",
    "build",
    "extension",
    "checkout",
)
"""In the order in which a report shows them."""

CheckFunction = Callable[[Context], Iterable[Outcome]]


@dataclass(frozen=True)
class Check:
    """One check: its code (also the code of its findings), family, title and function."""

    code: str
    family: str
    title: str
    run: CheckFunction

    @property
    def page(self) -> str:
        """What it looks at and why it matters, from the function's docstring; then the failure classes it predicts, each
        with reports that show it."""
        # whoever shows it breaks the lines
        parts = [" ".join(part.split()) for part in (inspect.getdoc(self.run) or "").split("\n\n")]
        if classes := [_with_reports(row) for row in foreseen_by(self.code)]:
            parts.append(f"Predicts: {', '.join(classes)}")
        return "\n\n".join(parts)

    @property
    def predicts(self) -> tuple[str, ...]:
        """Names of the failure classes (:mod:`splatfix.knowledge.breakages`) that it tells before they happen."""
        return tuple(row.name for row in foreseen_by(self.code))


def _with_reports(row: FailureClass) -> str:
    """``ninja_missing (nerfstudio-project/gsplat#1, ...)``: a failure class with two reports of it."""
    return f"{row.name} ({', '.join(row.examples[:2])})" if row.examples else row.name


REGISTERED: dict[str, Check] = {}
"""By code; filled when the modules of the catalogue are imported."""


def check(code: str, *, family: str, title: str) -> Callable[[CheckFunction], CheckFunction]:
    """Register a check. Its docstring is its page; it yields outcomes, which the runner stamps with code and family."""

    def register(function: CheckFunction) -> CheckFunction:
        if code in REGISTERED:
            raise ValueError(f"two checks are called {code}")
        if family not in FAMILIES:
            raise ValueError(f"there is no family {family}")
        REGISTERED[code] = Check(code, family, title, function)
        return function

    return register
