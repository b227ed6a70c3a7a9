"""All checks in order, the choice among them, and the runner."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from splatfix.checks import build, compiler, container, driver, environment, gpu, toolkit, torch
from splatfix.checks.checkout import colmap, cuda_code, python_code, rasterizer, sources, stack, submodules
from splatfix.checks.extension import jit_cache, linkage, modules, packages
from splatfix.checks.model import Evidence, Finding, Status
from splatfix.checks.registry import FAMILIES, REGISTERED, Check
from splatfix.context import Context
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.step import run

# The modules with checks, family by family as :data:`FAMILIES` has them: importing one registers its checks.
_ORDER = tuple(
    module.__name__
    for module in (
        *(gpu, driver, container, environment, torch, toolkit, compiler, build),
        *(linkage, modules, jit_cache, packages),
        *(submodules, rasterizer, colmap, cuda_code, python_code, sources, stack),
    )
)


def all_checks() -> tuple[Check, ...]:
    """Every check, in the order in which a report shows them: family by family."""
    return tuple(sorted(REGISTERED.values(), key=lambda check: _ORDER.index(check.function.__module__)))


def check_named(code: str) -> Check:
    """The check of this code, for those who decide by its attributes.

    Raises:
        SplatfixError: ``unknown-check`` (exit code 2).
    """
    check = REGISTERED.get(code)
    if check is None:
        raise usage_error("unknown-check", f"There is no check {code!r}.", run("splatfix", "checks", "list"))
    return check


def select(only: Iterable[str] = (), skip: Iterable[str] = ()) -> tuple[Check, ...]:
    """The checks named by code or family.

    Raises:
        SplatfixError: ``unknown-check`` (exit code 2) for a name that is neither.
    """
    only, skip = tuple(only), tuple(skip)
    for name in (*only, *skip):
        if name not in REGISTERED and name not in FAMILIES:
            raise usage_error(
                "unknown-check", f"There is no check or family {name!r}.", run("splatfix", "checks", "list")
            )
    selected = all_checks()
    if only:
        selected = tuple(check for check in selected if check.code in only or check.family in only)
    return tuple(check for check in selected if check.code not in skip and check.family not in skip)


def run_checks(context: Context, checks: Iterable[Check] | None = None) -> tuple[Finding, ...]:
    """The findings of all checks. A check that breaks becomes a ``crash`` finding; the others go on."""
    findings: list[Finding] = []
    for check in all_checks() if checks is None else checks:
        try:
            findings.extend(check.run(context))
        except Exception as error:  # noqa: BLE001 - the doctor's own defect is told as a finding, never hidden
            frame = inspect.trace()[-1]
            file = frame.filename.replace("\\", "/").rsplit("/", 1)[-1]
            message = error.what if isinstance(error, SplatfixError) else f"{type(error).__name__}: {error}"
            crash = check.finding(
                Status.CRASH,
                f"The check itself broke: {message}",
                evidence=Evidence("place", f"{file}:{frame.lineno}", "splatfix"),
                remedy="This is a defect of splatfix. Save the facts (diagnose --save) and report it with them.",
            )
            findings.append(crash)
    return tuple(findings)
