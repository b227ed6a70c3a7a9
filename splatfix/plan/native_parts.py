"""The extensions that are meant, and what is known of each: is it installed, which GPU code is in it, what broke it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from splatfix.checks import Finding, run_checks, select
from splatfix.checks.packages import leaf, variant_names
from splatfix.context import Goal, make_context
from splatfix.core.errors import SplatfixError
from splatfix.core.step import say
from splatfix.facts import Facts, FatbinGroup, SplatPackage
from splatfix.knowledge import Arch
from splatfix.knowledge.stacks import variant, variants
from splatfix.plan.condemned import files_of, its_call_fits, other_variant, what_condemns, who_loses_it
from splatfix.plan.recipes import recipe


@dataclass(frozen=True)
class NativePart:
    """One extension that is meant, and what is known of it."""

    name: str
    variant: str = ""
    """Key of the variant in the tables; "" when it is not known."""
    installed: bool = False
    swap: bool = False
    """It is one of splatfix's own drop-ins, which runs wherever torch does."""
    code: tuple[FatbinGroup, ...] = ()
    error: str = ""
    """Why what is installed cannot be used or read; "" when it can."""
    unfit: tuple[str, ...] = ()
    """What else speaks against what is installed: failures that checks found of it, or that another variant is meant."""
    replaces: str = ""
    """Which other stack loses it when the variant that is meant takes its place, as a sentence; "" where none does."""


def native_parts(aim: Goal, facts: Facts, archs: Sequence[Arch] = ()) -> Iterable[NativePart]:
    """The extensions that are meant: those named, of the stack or of the checkout; failing that, those installed.

    Args:
        archs: the GPUs to serve, for which what is installed is judged.

    Raises:
        SplatfixError: ``unknown-stack``.
    """
    names = dict(_named(aim, facts))
    meant: dict[str, tuple[str, ...]] = {canonicalize_name(name): keys for name, keys in names.items()}
    installed = {canonicalize_name(part.name): part for part in _installed(facts, archs, meant)}
    if not names:
        yield from installed.values()
    for name, keys in names.items():
        key = keys[0] if keys else ""
        there = installed.get(canonicalize_name(name))
        yield replace(there, variant=there.variant or key) if there else NativePart(name, key)


def _named(aim: Goal, facts: Facts) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Extensions by name with the variants that are meant: asked for, the stack's, or the checkout's."""
    if aim.extensions:
        yield from ((name, aim.variants.get(name, ())) for name in aim.extensions)
    elif aim.stack:
        known = recipe(aim.stack)
        if known is None:
            raise SplatfixError(
                "unknown-stack",
                f"{aim.stack} is no stack that splatfix knows.",
                todo=(say("Name the extensions instead, or give the checkout."),),
            )
        for part in known.parts:
            row = variant(part.variant) if part.variant else None
            name = row.module if row else part.path.rpartition("/")[2] or known.stack
            yield (name, (part.variant,) if part.variant else ())
    elif facts.checkout.value is not None:
        yield from ((item.source.label, ()) for item in facts.checkout.value.sources)


def _installed(
    facts: Facts, archs: Sequence[Arch], meant: Mapping[str, tuple[str, ...]]
) -> Iterable[NativePart]:
    """The splatting packages of the environment, with the GPU code of their native files put together."""
    environment = facts.environment
    findings = _findings(facts, archs)
    swaps = {item.name for item in environment.distributions.value or () if item.made_by_splatfix == "swap"}
    for package in environment.packages.value or ():
        files = files_of(package, facts)
        swap = any(name in swaps for name in package.distributions)
        code = tuple(group for item in files for group in item.code)
        error = next((item.error for item in files if item.error), package.error)
        if not swap and not files and not error:
            error = "its compiled part is not there"
        if code or swap or error or _is_cuda(package):
            name = package.distributions[0] if package.distributions else package.module
            keys = () if its_call_fits(package, findings) else meant.get(canonicalize_name(name), ())
            unfit = [*what_condemns(package, files, findings), other_variant(package, keys)]
            yield NativePart(
                name,
                _only_variant(package),
                True,
                swap,
                code,
                error,
                tuple(filter(None, unfit)),
                who_loses_it(package, meant.get(canonicalize_name(name), ())),
            )


# Families whose failures can be about one installed package; of the others none can.
_OF_PACKAGES = ("extension", "checkout", "environment")


def _findings(facts: Facts, archs: Sequence[Arch]) -> tuple[Finding, ...]:
    if not facts.environment.packages.value:
        return ()
    return run_checks(make_context(facts, Goal(tuple(arch.sm for arch in archs))), select(_OF_PACKAGES, ()))


def _is_cuda(package: SplatPackage) -> bool:
    return bool(package.native or package.native_missing or variants(leaf(package)))


def _only_variant(package: SplatPackage) -> str:
    if not variants(leaf(package)):
        return ""
    names = variant_names(package)
    return names[0] if names else ""
