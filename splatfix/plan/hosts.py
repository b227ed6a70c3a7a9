"""A drop-in for the compiled module of a package that stays: whether that package is here, and one that it was made for."""

from __future__ import annotations

from collections.abc import Sequence

from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.context.hosts import compiled_module, imported_by_host, other_releases, release_served
from splatfix.core.errors import Rejected
from splatfix.core.step import run, say, target_options
from splatfix.knowledge.dropins import Dropin
from splatfix.model import Distribution
from splatfix.model.steps import InstallDependencies, Reason


def host_obstacle(context: Context, dropin: Dropin) -> Rejected | None:
    """Reject a drop-in beside a host that is not here, is of another release, lies elsewhere, or is compiled."""
    if not dropin.host:
        return None
    host = served_host(context, dropin)
    if isinstance(host, Rejected):
        return host
    name, python = f"{host.name} {host.version}", context.interpreter
    if host.editable or (python and not host.location.startswith(python.prefix)):
        todo, folder = other_releases(context, dropin)[:1], host.origin or host.location
        return Rejected.of("plan.host-elsewhere", todo=todo, name=name, folder=folder)
    if compiled := compiled_module(context, dropin):
        check = run("splatfix", "diagnose", text="See whether it fits this torch and GPU")
        remove = pip(context.facts, "uninstall", host.name, text="To use the drop-in in its place, first")
        return Rejected.of("plan.host-compiled", todo=(check, remove), name=name, compiled=compiled)
    return None


def imports_of_hosts(
    context: Context, dropins: Sequence[Dropin], *, installing: bool
) -> tuple[InstallDependencies, ...] | Rejected:
    """Return the step that brings what hosts import without asking pip for it, where it may; () where all of it is installed."""
    reasons = {}
    for dropin in dropins:
        for name in imported_by_host(dropin, context.version_of(dropin.host)):
            if not context.version_of(name):
                reasons[name] = f"{dropin.host} imports {name}, which its wheel does not ask for"
    if not reasons:
        return ()
    names = tuple(reasons)
    if not installing:
        install = pip(context.facts, "install", *names)
        too = say("Or add --with-dependencies: then splatfix installs it too, in the same journal.")
        why = "; ".join(reasons.values())
        return Rejected.of("plan.host-import-missing", todo=(install, too), reasons=why)
    texts = tuple(map(Reason, reasons.values()))
    return (InstallDependencies(requirements=names, modules=names, reasons=texts),)


def served_host(context: Context, dropin: Dropin) -> Distribution | Rejected:
    """Return the installed host, where it is of a release that the drop-in was made for."""
    host = context.distribution(dropin.host)
    others = other_releases(context, dropin)
    if host is None:
        return Rejected.of("plan.host-not-installed", todo=others, host=dropin.host)
    if release_served(dropin, host.version):
        return host
    again = (f"{host.name}=={host.version}", *target_options(context.goal.targets))
    compile_it = run("splatfix", "install", *again, text="Or compile what is installed")
    return Rejected.of(
        "plan.host-release-not-served",
        todo=(*others, compile_it),
        name=f"{host.name} {host.version}",
        made_for=" and ".join(dropin.host_releases),
    )
