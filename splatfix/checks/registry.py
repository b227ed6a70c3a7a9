"""The registry of checks: each a pure function from facts and a goal to findings, with a code and a page."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from splatfix.checks.model import Evidence, Finding, Goal, Status
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.step import run, say
from splatfix.facts import Facts
from splatfix.knowledge.failures import failure_class

CheckFunction = Callable[[Facts, Goal], Iterable[Finding]]


@dataclass(frozen=True)
class Check:
    """One check: its code (also the code of its findings), family, title and page."""

    code: str
    family: str
    title: str
    run: CheckFunction

    @property
    def page(self) -> str:
        """What it looks at and why it matters, from the function's docstring; then the failure classes it foresees, each
        with reports that show it."""
        text, classes = inspect.getdoc(self.run) or "", [_with_reports(name) for name in self.foresees]
        text = "\n\n".join(
            " ".join(part.split()) for part in text.split("\n\n")
        )  # whoever shows it breaks the lines
        return f"{text}\n\nForesees: {', '.join(classes)}" if classes else text

    @property
    def foresees(self) -> tuple[str, ...]:
        """Names of the failure classes (:mod:`splatfix.knowledge.failures`) that it tells before they happen."""
        from splatfix.checks.classes import foreseen_by

        return foreseen_by(self.code)


def _with_reports(name: str) -> str:
    """``ninja_missing (nerfstudio-project/gsplat#1, ...)``: a failure class with two reports of it."""
    row = failure_class(name)
    return f"{name} ({', '.join(row.examples[:2])})" if row and row.examples else name


_CHECKS: dict[str, Check] = {}


def check(code: str, family: str, title: str) -> Callable[[CheckFunction], CheckFunction]:
    """Register a check under its code; findings it yields must carry that code."""

    def register(function: CheckFunction) -> CheckFunction:
        if code in _CHECKS:
            raise ValueError(f"two checks are called {code}")
        _CHECKS[code] = Check(code, family, title, function)
        return function

    return register


def all_checks() -> tuple[Check, ...]:
    """Every check, in the order in which a report shows them: family by family."""
    from splatfix.checks import (  # noqa: F401
        abi,
        arch_list,
        build_resources,
        checkout,
        colmap,
        compiler,
        container,
        driver,
        extension,
        gpu,
        interpreter,
        jit,
        packages,
        runtime,
        source_build,
        sources,
        stack,
        toolkit,
        toolkit_parts,
        torch_build,
        wheels,
        windows,
    )

    order = {name: place for place, name in enumerate(FAMILIES)}
    return tuple(
        sorted(_CHECKS.values(), key=lambda item: (order[item.family], item.run.__module__ not in _OPEN))
    )


FAMILIES = ("gpu", "driver", "environment", "torch", "toolkit", "compiler", "build", "extension", "checkout")

# Modules whose checks open their family: what is there comes before what is wrong with it.
_OPEN = tuple(
    f"splatfix.checks.{name}"
    for name in ("gpu", "driver", "interpreter", "torch_build", "toolkit", "toolkit_parts", "compiler")
)


def select(only: Iterable[str] = (), skip: Iterable[str] = ()) -> tuple[Check, ...]:
    """The checks named by code or family.

    Raises:
        SplatfixError: ``unknown-check`` (exit code 2) for a name that is neither.
    """
    checks = all_checks()
    names = {item.code for item in checks} | set(FAMILIES)
    only, skip = tuple(only), tuple(skip)
    for name in (*only, *skip):
        if name not in names:
            raise usage_error(
                "unknown-check", f"There is no check or family {name!r}.", run("splatfix", "checks", "list")
            )
    chosen = [item for item in checks if not only or item.code in only or item.family in only]
    return tuple(item for item in chosen if item.code not in skip and item.family not in skip)


def run_checks(facts: Facts, goal: Goal, checks: Iterable[Check] | None = None) -> tuple[Finding, ...]:
    """The findings of all checks. A check that breaks becomes a ``crash`` finding; the others go on."""
    findings: list[Finding] = []
    for item in all_checks() if checks is None else checks:
        try:
            findings.extend(item.run(facts, goal))
        except Exception as error:  # noqa: BLE001 - the doctor's own defect is told as a finding, never hidden
            findings.append(_crash(item, error))
    return tuple(findings)


def _crash(item: Check, error: Exception) -> Finding:
    where = inspect.trace()[-1]
    place = f"{where.filename.replace(chr(92), '/').rsplit('/', 1)[-1]}:{where.lineno}"
    message = error.what if isinstance(error, SplatfixError) else f"{type(error).__name__}: {error}"
    return Finding(
        item.code,
        Status.CRASH,
        f"The check itself broke: {message}",
        evidence=(Evidence("place", place, "splatfix"),),
        remedy=(
            say("This is a defect of splatfix. Save the facts (diagnose --save) and report it with them."),
        ),
    )
