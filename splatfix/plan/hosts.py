"""A drop-in for the compiled module of a package that stays: whether that package is here, and one that it was made for."""

from __future__ import annotations

from collections.abc import Sequence

from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.context.hosts import compiled_module, imported_by_host, other_releases, release_served
from splatfix.core.errors import SplatfixError
from splatfix.core.step import run, say
from splatfix.facts import Distribution
from splatfix.knowledge.dropins import Dropin
from splatfix.plan.steps import InstallDependencies, Reason


def require_host(context: Context, dropin: Dropin) -> None:
    """Refuse to put a drop-in beside a host that is not here, is of another release, lies elsewhere, or is compiled.

    Raises:
        SplatfixError: as :func:`served_host`; ``host-elsewhere``, ``host-compiled``.
    """
    if not dropin.host:
        return
    host = served_host(context, dropin)
    name = f"{host.name} {host.version}"
    python = context.interpreter
    if host.editable or (python and not host.location.startswith(python.prefix)):
        raise SplatfixError(
            "host-elsewhere",
            f"{name} lies in {host.origin or host.location}, outside of this environment's site-packages.",
            meaning="A drop-in beside it would not be found there; nothing was changed.",
            todo=other_releases(context, dropin)[:1],
        )
    if compiled := compiled_module(context, dropin):
        raise SplatfixError(
            "host-compiled",
            f"{name} has its compiled module ({compiled}), which the drop-in would hide.",
            meaning="Nothing was changed.",
            todo=(
                run("splatfix", "diagnose", text="See whether it fits this torch and GPU"),
                pip(context.facts, "uninstall", host.name, text="To use the drop-in in its place, first"),
            ),
        )


def imports_of_hosts(
    context: Context, dropins: Sequence[Dropin], *, installing: bool
) -> tuple[InstallDependencies, ...]:
    """The step that brings what hosts import without asking pip for it; () where all of it is installed.

    Raises:
        SplatfixError: ``host-import-missing`` where something is missing and is not to be installed too.
    """
    reasons = {}
    for dropin in dropins:
        for name in imported_by_host(dropin, context.version_of(dropin.host)):
            if not context.version_of(name):
                reasons[name] = f"{dropin.host} imports {name}, which its wheel does not ask for"
    if not reasons:
        return ()
    if not installing:
        raise SplatfixError(
            "host-import-missing",
            f"{'; '.join(reasons.values())}, and which is not installed.",
            meaning="Nothing could be drawn; nothing was changed.",
            todo=(
                pip(context.facts, "install", *reasons),
                say("Or add --with-dependencies: then splatfix installs it too, in the same journal."),
            ),
        )
    return (
        InstallDependencies(
            requirements=tuple(reasons),
            modules=tuple(reasons),
            reasons=tuple(Reason(text) for text in reasons.values()),
        ),
    )


def served_host(context: Context, dropin: Dropin) -> Distribution:
    """The installed host, of a release that the drop-in was made for.

    Raises:
        SplatfixError: ``host-not-installed``, ``host-release-not-served``.
    """
    host = context.distribution(dropin.host)
    if host is None:
        raise SplatfixError(
            "host-not-installed",
            f"{dropin.host} is not installed, and the drop-in is for its compiled module alone.",
            todo=other_releases(context, dropin),
        )
    name = f"{host.name} {host.version}"
    if not release_served(dropin, host.version):
        made_for = " and ".join(dropin.host_releases)
        raise SplatfixError(
            "host-release-not-served",
            f"{name} is installed; the drop-in for its compiled module was made for {made_for}.",
            meaning="Another release calls other functions; nothing was changed.",
            todo=(
                *other_releases(context, dropin),
                run("splatfix", "install", name.replace(" ", "=="), text="Or compile what is installed"),
            ),
        )
    return host
