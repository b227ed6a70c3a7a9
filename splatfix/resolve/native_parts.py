"""The extensions that are meant, and what is known of each: is it installed, which GPU code is in it, what broke it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from splatfix.checks.packages import leaf, variant_names
from splatfix.core.errors import SplatfixError
from splatfix.facts import ContainerGroup, Facts, SplatPackage
from splatfix.knowledge.stacks import variant, variants
from splatfix.resolve.recipes import recipe
from splatfix.resolve.ways import Aim


@dataclass(frozen=True)
class NativePart:
    """One extension that is meant, and what is known of it."""

    name: str
    variant: str = ""
    """Key of the variant in the tables; "" when it is not known."""
    installed: bool = False
    swap: bool = False
    """It is one of splatfix's own drop-ins, which runs wherever torch does."""
    code: tuple[ContainerGroup, ...] = ()
    error: str = ""
    """Why what is installed cannot be used or read; "" when it can."""


def native_parts(aim: Aim, facts: Facts) -> Iterable[NativePart]:
    """The extensions that are meant: those named, of the stack or of the checkout; failing that, those installed.

    Raises:
        SplatfixError: ``unknown-stack``.
    """
    installed = {canonicalize_name(part.name): part for part in _installed(facts)}
    names = dict(_named(aim, facts))
    if not names:
        yield from installed.values()
    for name, key in names.items():
        there = installed.get(canonicalize_name(name))
        yield replace(there, variant=there.variant or key) if there else NativePart(name, key)


def _named(aim: Aim, facts: Facts) -> Iterable[tuple[str, str]]:
    """Extensions by name with the variant that is meant: asked for, the stack's, or the checkout's."""
    if aim.extensions:
        yield from ((name, "") for name in aim.extensions)
    elif aim.stack:
        known = recipe(aim.stack)
        if known is None:
            raise SplatfixError(
                "unknown-stack", f"{aim.stack} is no stack that splatfix knows.",
                todo=("Name the extensions instead, or give the checkout.",),
            )  # fmt: skip
        for part in known.parts:
            row = variant(part.variant) if part.variant else None
            yield (row.module if row else part.path.rpartition("/")[2] or known.stack, part.variant)
    elif facts.checkout.value is not None:
        yield from ((item.source.label, "") for item in facts.checkout.value.sources)


def _installed(facts: Facts) -> Iterable[NativePart]:
    """The splatting packages of the environment, with the GPU code of their native files put together."""
    environment = facts.environment
    swaps = {item.name for item in environment.distributions.value or () if item.made_by_splatfix == "swap"}
    for package in environment.packages.value or ():
        files = [
            item
            for item in environment.extensions.value or ()
            if item.path.startswith(f"{package.module.replace('.', '/')}/")
            or item.distribution in package.distributions
        ]
        swap = any(name in swaps for name in package.distributions)
        code = tuple(group for item in files for group in item.code)
        error = next((item.error for item in files if item.error), package.error)
        if not swap and not files and not error:
            error = "its compiled part is not there"
        if code or swap or error or _is_cuda(package):
            name = package.distributions[0] if package.distributions else package.module
            yield NativePart(name, _only_variant(package), True, swap, code, error)


def _is_cuda(package: SplatPackage) -> bool:
    return bool(package.native or package.native_missing or variants(leaf(package)))


def _only_variant(package: SplatPackage) -> str:
    if not variants(leaf(package)):
        return ""
    names = variant_names(package)
    return names[0] if names else ""
