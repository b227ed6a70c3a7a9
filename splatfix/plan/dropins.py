"""Which drop-ins replace what the user named: a drop-in, an extension's source folder, or a whole checkout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.core.errors import Rejected
from splatfix.core.step import Step, fill_in, run
from splatfix.knowledge.dropins import (
    DROPINS,
    IRREPLACEABLE,
    IRREPLACEABLE_VARIANTS,
    Dropin,
    dropin_for_variant,
    dropin_named,
    known_names,
    refusal,
)
from splatfix.knowledge.stacks import stacks, variant, variants
from splatfix.model import Checkout
from splatfix.model.option import Native, Replacement
from splatfix.plan.checkout import (
    Incomplete,
    NoFolder,
    NothingToBuild,
    checkout_to_replace,
    install_name,
    is_source,
    read_sources,
)
from splatfix.plan.replacement import replacement_for

_SHARED_NAME = "diff-gaussian-rasterization"


def choose_dropins(
    sources: Iterable[str], checkout: Checkout | None = None, backend: str = "pure"
) -> Replacement | Rejected:
    """Choose the drop-ins for names, source folders or whole checkouts, each once, and what they cannot replace.

    Args:
        checkout: as it was read already, if one of the sources is one.
        backend: the one that was asked for, which the commands of rejections name.
    """
    named = list(dict.fromkeys(sources))
    if named == ["."] and not is_source(Path.cwd()):
        return Rejected.of("plan.nothing-named-to-replace", known=known_names())
    dropins: dict[str, Dropin] = {}
    native: dict[Native, None] = {}
    for text in named:
        replacement = _replacement(text, checkout, backend)
        if isinstance(replacement, Rejected):
            return replacement
        native.update(dict.fromkeys(replacement.native))
        for dropin in replacement.dropins:
            other = dropins.setdefault(dropin.distribution, dropin)
            if other != dropin:
                return Rejected.of("plan.two-of-one-name", other=other.name, dropin=dropin.name)
    return Replacement(tuple(dropins.values()), tuple(native))


def _replacement(text: str, checkout: Checkout | None, backend: str) -> Replacement | Rejected:
    read = checkout_to_replace(text, checkout, "--backend", backend)
    if isinstance(read, NoFolder):
        dropin = _by_name(text, backend)
        return dropin if isinstance(dropin, Rejected) else Replacement((dropin,))
    if isinstance(read, Rejected):
        return read
    checkout = read
    replacement = _of_a_host(checkout) or replacement_for(checkout)
    if replacement.dropins and not replacement.useless:
        return replacement
    sources = read_sources((text,), checkout=checkout)
    if not replacement.native:
        # the reason that install gives for having nothing to build, where it knows a better one
        if isinstance(sources, NothingToBuild):
            return sources
        return Rejected.of("plan.nothing-to-replace", folder=checkout.folder, known=known_names())
    # what builds a source: itself, or where install refuses it, what that says to build in its place
    build: tuple[Step, ...] = (fill_in("splatfix", "install", text, "--target", "ARCH"),)
    if isinstance(sources, Rejected) and not isinstance(sources, Incomplete):
        build = sources.todo
    beside = tuple(filter(dropin_named, replacement.names)) or companions(replacement.native[0].module)
    return _only_native(replacement.refused, "", *build, *_by_their_names(beside, backend))


def _of_a_host(checkout: Checkout) -> Replacement | None:
    """What a drop-in replaces of a source that is itself the host of one (gsplat's own): its compiled module, beside an
    installed host of the same release; None where it is no such source."""
    for dropin in DROPINS:
        for item in checkout.sources:
            source = item.source
            if not dropin.host or source.name != dropin.host or item.path != ".":
                continue
            releases = dropin.host_releases
            if source.version and source.version not in releases:
                reason = f"the drop-in for its compiled module was made for {' and '.join(releases)}"
                return Replacement(native=(Native(f"{source.name} {source.version}", reason),))
            if source.version:
                releases = {source.version: releases[source.version]}
            return Replacement((replace(dropin, host_releases=releases),))
    return None


def _only_native(subject: str, reason: str, *todo: Step) -> Rejected:
    if reason:
        subject += f": {reason}"
    return Rejected.of("plan.nothing-replaces-it", todo=todo, subject=subject)


def _by_name(text: str, backend: str) -> Dropin | Rejected:
    name, _, kind = text.partition("@")
    name = canonicalize_name(name)
    if name == _SHARED_NAME and kind:
        for dropin in DROPINS:
            if dropin.distribution == _SHARED_NAME and kind in (dropin.variant, *dropin.serves):
                return dropin
        if kind not in IRREPLACEABLE_VARIANTS:
            return Rejected.of("plan.unknown-variant", text=text, variants=_variant_names())
        dropin_of_twin = dropin_for_variant(kind)
        if dropin_of_twin is not None:
            return dropin_of_twin
        row = variant(kind)
        module = subject = kind
        if row:
            module, subject = row.module, f"{row.module} ({kind})"
        beside = _by_their_names(companions(module, kind), backend)
        return _only_native(subject, refusal(kind) or "", _build(module), *beside)
    if name == _SHARED_NAME:
        return Rejected.of("plan.variant-not-said", text=text, variants=_variant_names(), backend=backend)
    for dropin in DROPINS:
        if name in (dropin.host or dropin.distribution, dropin.distribution) and not kind:
            return dropin
    if name in IRREPLACEABLE:
        return _only_native(
            text, IRREPLACEABLE[name], _build(name), *_by_their_names(companions(name), backend)
        )
    return Rejected.of("plan.unknown-drop-in", text=text, known=known_names())


def _variant_names() -> str:
    return ", ".join(dropin.name for dropin in DROPINS if dropin.variant)


def _by_their_names(names: Sequence[str], backend: str) -> tuple[Step, ...]:
    """The command for the drop-ins of what is called beside an extension."""
    if not names:
        return ()
    text = "What is called beside it can be replaced"
    return (run("splatfix", "install", *names, "--backend", backend, text=text),)


def _build(extension: str) -> Step:
    release = install_name(extension)
    if release:
        return run("splatfix", "install", release, "--target", "sm_120")
    return fill_in("splatfix", "install", "SOURCE", "--target", "sm_120")


def companions(extension: str, variant_key: str = "") -> tuple[str, ...]:
    """Names of the drop-ins for what the stacks that call an extension call beside it; () where they call nothing else.

    Args:
        extension: a module or distribution; where several share the name, ``variant_key`` tells which.
    """
    keys = {variant_key}
    if not variant_key:
        keys = {row.key for row in variants(extension.replace("-", "_"))} | {extension}
    names: set[str] = set()
    for stack in stacks():
        needed = (*stack.needs, *stack.also_needs)
        if keys.isdisjoint(needed):
            continue
        for key in needed:
            dropin = dropin_for_variant(key)
            for other in DROPINS:
                if not other.variant and key in (other.module, other.distribution, other.host):
                    dropin = dropin or other
            if dropin is not None and dropin.module != extension.replace("-", "_"):
                names.add(dropin.name)
    return tuple(sorted(names))
