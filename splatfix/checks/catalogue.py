"""All checks in order, the choice among them, and the runner."""

import inspect
from collections.abc import Iterable
from difflib import get_close_matches

from splatfix.checks import (
    build,
    compiler,
    container,
    driver,
    environment,
    gpu,
    toolkit,
    torch,
)
from splatfix.checks.checkout import (
    colmap,
    cuda_code,
    python_code,
    rasterizer,
    sources,
    stack,
    submodules,
)
from splatfix.checks.extension import jit_cache, linkage, modules, packages
from splatfix.checks.registry import FAMILIES, REGISTERED, Check
from splatfix.context import Context
from splatfix.core.errors import SplatfixError
from splatfix.core.step import say
from splatfix.model import Evidence, Finding, Status

# The modules with checks, family by family as :data:`FAMILIES` has them: importing one registers its checks.
_MODULES = (
    *(gpu, driver, container, environment, torch, toolkit, compiler, build),
    *(linkage, modules, jit_cache, packages),
    *(submodules, rasterizer, colmap, cuda_code, python_code, sources, stack),
)


def all_checks() -> tuple[Check, ...]:
    """Return every check, in the order in which a report shows them: family by family."""
    places = {module.__name__: place for place, module in enumerate(_MODULES)}
    checks = [check for check in REGISTERED.values() if check.function.__module__ in places]
    return tuple(sorted(checks, key=lambda check: places[check.function.__module__]))


def check_named(code: str) -> Check:
    """The check of this code, for those who decide by its attributes.

    Raises:
        SplatfixError: ``unknown-check`` (exit code 2).
    """
    check = REGISTERED.get(code)
    if check is None:
        raise SplatfixError.of("checks.unknown-check", code=code, near=_near(code))
    return check


def _near(name: str) -> str:
    near = get_close_matches(name, [*REGISTERED, *FAMILIES])
    return f" Did you mean {' or '.join(near)}?" if near else ""


def select(only: Iterable[str] = (), skip: Iterable[str] = ()) -> tuple[Check, ...]:
    """The checks named by code or family.

    Raises:
        SplatfixError: ``unknown-check`` (exit code 2) for a name that is neither.
    """
    only, skip = tuple(only), tuple(skip)
    selected = all_checks()
    for name in (*only, *skip):
        if name not in REGISTERED and name not in FAMILIES:
            raise SplatfixError.of("checks.unknown-check-or-family", name=name, near=_near(name))
    if only:
        selected = tuple(check for check in selected if check.code in only or check.family in only)
    return tuple(check for check in selected if check.code not in skip and check.family not in skip)


def run_checks(context: Context, checks: Iterable[Check] | None = None) -> tuple[Finding, ...]:
    """The findings of all checks. A check that breaks becomes a ``crash`` finding; the others go on."""
    findings: list[Finding] = []
    for check in all_checks() if checks is None else checks:
        try:
            findings.extend(check.function(context, check))
        except MemoryError:  # no defect of ours
            raise
        except Exception as error:  # noqa: BLE001 - the doctor's own defect is told as a finding, never hidden
            frame = inspect.trace()[-1]
            file = frame.filename.replace("\\", "/").rsplit("/", 1)[-1]
            message = error.what if isinstance(error, SplatfixError) else f"{type(error).__name__}: {error}"
            summary = f"The check itself broke: {message}"
            evidence = (Evidence("place", f"{file}:{frame.lineno}", "splatfix"),)
            remedy = say(
                "This is a defect of splatfix. Save the facts (diagnose --save) and report it with them."
            )
            crash = Finding(
                Status.CRASH, summary, "", evidence, (remedy,), code=check.code, family=check.family
            )
            findings.append(crash)
    return tuple(findings)
