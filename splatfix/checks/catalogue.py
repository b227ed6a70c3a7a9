"""All checks in order, the choice among them, and the runner."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from splatfix.checks import (  # noqa: F401 - importing a module registers its checks
    abi,
    arch_list,
    build_resources,
    checkout,
    compiler,
    container,
    cuda_code,
    driver,
    environment,
    extension,
    gpu,
    headers,
    packages,
    python_code,
    sources,
    stack,
    toolkit,
    torch,
    unreadable,
    visible,
)
from splatfix.checks.model import Evidence, Finding, Outcome, Status, outcome
from splatfix.checks.registry import FAMILIES, REGISTERED, Check
from splatfix.context import Context
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.step import run


def all_checks() -> tuple[Check, ...]:
    """Every check, in the order in which a report shows them: family by family."""
    order = {name: place for place, name in enumerate(FAMILIES)}
    return tuple(sorted(REGISTERED.values(), key=lambda item: (order[item.family], item.run.__module__)))


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


def run_checks(context: Context, checks: Iterable[Check] | None = None) -> tuple[Finding, ...]:
    """The findings of all checks. A check that breaks becomes a ``crash`` finding; the others go on."""
    findings: list[Finding] = []
    for item in all_checks() if checks is None else checks:
        try:
            findings.extend(_stamped(item, found) for found in item.run(context))
        except Exception as error:  # noqa: BLE001 - the doctor's own defect is told as a finding, never hidden
            findings.append(_stamped(item, _crash(error)))
    return tuple(findings)


def _stamped(item: Check, found: Outcome) -> Finding:
    return Finding(**vars(found), code=item.code, family=item.family)


def _crash(error: Exception) -> Outcome:
    where = inspect.trace()[-1]
    place = f"{where.filename.replace(chr(92), '/').rsplit('/', 1)[-1]}:{where.lineno}"
    message = error.what if isinstance(error, SplatfixError) else f"{type(error).__name__}: {error}"
    return outcome(
        Status.CRASH,
        f"The check itself broke: {message}",
        evidence=Evidence("place", place, "splatfix"),
        remedy="This is a defect of splatfix. Save the facts (diagnose --save) and report it with them.",
    )
