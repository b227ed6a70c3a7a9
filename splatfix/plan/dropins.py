"""Which drop-ins replace what the user named: a drop-in, an extension's source folder, or a whole checkout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.core.errors import Rejected
from splatfix.core.step import Step, run, say
from splatfix.knowledge.dropins import (
    DROPINS,
    IRREPLACEABLE,
    IRREPLACEABLE_VARIANTS,
    Dropin,
    dropin_named,
    known_names,
)
from splatfix.knowledge.stacks import stacks, variant, variants
from splatfix.model import Checkout
from splatfix.model.option import Native, Replacement, Request
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
_NOTHING_ASKED = Request(sources=(), backend="pure")


def choose_dropins(
    sources: Iterable[str], checkout: Checkout | None = None, request: Request = _NOTHING_ASKED
) -> Replacement | Rejected:
    """Choose the drop-ins for names, source folders or whole checkouts, each once, and name what they cannot replace.

    Args:
        checkout: as it was read already, if one of the sources is one.
        request: what the commands of rejections go on with.
    """
    named = list(dict.fromkeys(sources))
    if named == ["."] and not is_source(Path.cwd()):
        return Rejected.of("plan.nothing-named-to-replace", known=known_names())
    dropins: dict[str, Dropin] = {}
    native: dict[Native, None] = {}
    for text in named:
        read = checkout_to_replace(text, checkout, request)
        if isinstance(read, NoFolder):
            replacement = _by_name(text, request)
        elif isinstance(read, Rejected):
            return read
        else:
            replacement = _of_checkout(text, read, request)
        if isinstance(replacement, Rejected):
            return replacement
        native.update(dict.fromkeys(replacement.native))
        for dropin in replacement.dropins:
            other = dropins.setdefault(dropin.distribution, dropin)
            if other != dropin:
                return Rejected.of("plan.two-of-one-name", other=other.name, dropin=dropin.name)
    return Replacement(tuple(dropins.values()), tuple(native))


def _of_checkout(text: str, checkout: Checkout, request: Request) -> Replacement | Rejected:
    replacement = _of_a_host(checkout) or replacement_for(checkout)
    if replacement.dropins and not replacement.useless:
        return replacement
    for_targets = Request(sources=(), targets=request.targets)
    sources = read_sources((text,), checkout=checkout, request=for_targets)
    if not replacement.native:
        # the reason that install gives for having nothing to build, where it knows a better one
        if isinstance(sources, NothingToBuild):
            return sources
        return Rejected.of("plan.nothing-to-replace", folder=checkout.folder, known=known_names())
    # what builds a source: itself, or where install rejects it, what that says to build in its place
    build: tuple[Step, ...] = (request.install(text, sources=(text,)),)
    if isinstance(sources, Rejected) and not isinstance(sources, Incomplete):
        build = sources.todo
    beside = tuple(filter(dropin_named, replacement.names)) or companions(replacement.native[0].module)
    return _nothing_replaces(replacement.refused, build, beside, request)


def _of_a_host(checkout: Checkout) -> Replacement | None:
    """Choose what replaces the compiled module of a source that is itself the host of a drop-in (gsplat's own), beside an
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


def _by_name(text: str, request: Request) -> Replacement | Rejected:
    """Choose the drop-in of a name, such as ``simple_knn``, ``gsplat``, ``diff_gaussian_rasterization@mip``."""
    name, _, kind = text.partition("@")
    name = canonicalize_name(name)
    for dropin in DROPINS:
        by_kind = dropin.variant and name == dropin.distribution and kind in (dropin.variant, *dropin.serves)
        if by_kind or (not dropin.variant and not kind and name in (dropin.host, dropin.distribution)):
            return Replacement((dropin,))
    kinds = ", ".join(dropin.name for dropin in DROPINS if dropin.variant)
    if name == _SHARED_NAME and not kind:
        named = ("CHECKOUT", "--backend", request.backend)
        checkout = request.install(*named, text="Or give the trainer's checkout")
        steps = (say(f"Name it: {kinds}"), checkout)
        return Rejected.of("plan.variant-not-said", text=text, todo=steps)
    row = variant(kind) if name == _SHARED_NAME and kind in IRREPLACEABLE_VARIANTS else None
    if name == _SHARED_NAME and row is None:
        return Rejected.of("plan.unknown-variant", text=text, variants=kinds)
    if row:
        extension, beside = row.module, companions(row.module, kind)
        subject = f"{row.module} ({kind}): {IRREPLACEABLE_VARIANTS[kind]}"
    elif name in IRREPLACEABLE:
        extension, beside = name, companions(name)
        subject = f"{text}: {IRREPLACEABLE[name]}"
    else:
        return Rejected.of("plan.unknown-drop-in", text=text, known=known_names())
    build = run("splatfix", "install", "SOURCE", "--target", "sm_120")
    if release := install_name(extension):
        build = run("splatfix", "install", release, "--target", "sm_120")
    return _nothing_replaces(subject, (build,), beside, request)


def _nothing_replaces(
    subject: str, build: Sequence[Step], beside: Sequence[str], request: Request
) -> Rejected:
    """Reject what must be built natively, with the drop-ins for what is called beside it, by their names."""
    todo = list(build)
    if beside:
        text = "What is called beside it can be replaced"
        todo.append(request.install(*beside, "--backend", request.backend, text=text))
    return Rejected.of("plan.nothing-replaces-it", subject=subject, todo=tuple(todo))


def companions(extension: str, variant_key: str = "") -> tuple[str, ...]:
    """Return the drop-ins for what the stacks that call an extension call beside it, by name; () where that is nothing.

    Args:
        extension: a module or distribution; where several share the name, ``variant_key`` tells which.
    """
    module = extension.replace("-", "_")
    keys = {variant_key}
    if not variant_key:
        keys = {row.key for row in variants(module)} | {extension}
    names: set[str] = set()
    for stack in stacks():
        needed = {*stack.needs, *stack.also_needs}
        for dropin in DROPINS if keys & needed else ():
            own = {*dropin.serves}
            if not dropin.variant:
                own |= {dropin.module, dropin.distribution, dropin.host}
            if dropin.module != module and own & needed:
                names.add(dropin.name)
    return tuple(sorted(names))
