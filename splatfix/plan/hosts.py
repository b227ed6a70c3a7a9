"""A drop-in for the compiled module of a package that stays: whether that package is here, and one that it was made for."""

from __future__ import annotations

from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.context.hosts import compiled_module, other_releases, release_served
from splatfix.core.errors import SplatfixError
from splatfix.core.step import run
from splatfix.facts import Distribution
from splatfix.knowledge.dropins import Dropin


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
