"""Ranks the ways out: every road is tried on the facts; what can be taken is a plan, what cannot keeps its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from packaging.utils import canonicalize_name

from splatfix.checks import Finding
from splatfix.context import Goal, Rejected
from splatfix.context.readings import is_windows
from splatfix.core.errors import SplatfixError
from splatfix.core.step import commands
from splatfix.facts import Facts
from splatfix.knowledge import cubin_runs_on
from splatfix.plan import roads_build as build_roads
from splatfix.plan import roads_other as other_roads
from splatfix.plan.advice import advise
from splatfix.plan.checkout import sources_in
from splatfix.plan.condemned import variants_of_source
from splatfix.plan.plan import Request
from splatfix.plan.roads_swap import swap
from splatfix.plan.roads_torch import other_torch
from splatfix.plan.situation import Situation, situation
from splatfix.plan.swaps import choose_swaps
from splatfix.plan.ways import Lane, Road, WayOut, Ways


def aim_at(request: Request, facts: Facts, *, keep: tuple[str, ...] = (), source: str = "") -> Goal:
    """The aim of an installation request: its extensions by name, and what stands in for them, as the sources tell.

    A source that cannot be read gives an aim without names; what is wrong with it is for ``make_plan`` to say.
    """
    labels: tuple[str, ...] = ()
    try:
        found = sources_in(request.sources)[0]
        labels = tuple(item.label for item in found)
    except SplatfixError as error:
        incomplete = error.code == "source-incomplete"
        fetch = tuple(item.shell() for item in commands(error.todo) if item.argv[:1] == ("git",))
        return Goal(
            request.targets,
            keep=keep,
            source=source,
            lacking=error.what if incomplete else "",
            fetch=fetch[:1] if incomplete else (),
        )
    names: tuple[str, ...] = ()
    refused = ""
    try:
        names = tuple(item.name for item in choose_swaps(request.sources))
    except SplatfixError as error:
        refused = error.what
    return Goal(
        request.targets,
        extensions=labels,
        keep=keep,
        source=source,
        drop_ins=names,
        no_drop_ins=refused,
        variants={item.label: variants_of_source(item.folder) for item in found},
    )


def find_ways(aim: Goal, facts: Facts, lanes: Sequence[Lane] = ()) -> Ways:
    """Every way from these facts to the aim, the least invasive first, and every shut road with its reason.

    Changes nothing and looks at nothing but the facts: recorded ones give the same answer anywhere.

    Raises:
        SplatfixError: ``unknown-arch`` or ``unknown-stack`` for an aim that names what is not known.
    """
    try:
        found = situation(aim, facts)
    except SplatfixError as error:
        if error.code != "no-gpu-to-target":
            raise
        return _without_target(aim, facts, error)
    taken = list(_try_all(found, lanes))
    opened = any(isinstance(item, WayOut) and item.road not in (Road.CONTAINER, Road.SWAP) for item in taken)
    taken.append(other_roads.driver(found, lambda other: _plans_with(aim, other, lanes), opened=opened))
    plans = tuple(item for item in taken if isinstance(item, WayOut))
    rejected = tuple(item for item in taken if isinstance(item, Rejected))
    notes = _notes(found, opened=opened)
    return Ways(tuple(arch.sm for arch in found.archs), found.subjects, plans, rejected, notes)


def ways_out_of(
    findings: Sequence[Finding],
    aim: Goal,
    facts: Facts,
    lanes: Sequence[Lane] = (),
) -> Ways:
    """As :func:`find_ways`, with the advice that answers the failures among these findings."""
    ways = find_ways(aim, facts, lanes)
    found = situation(aim, facts) if ways.targets else Situation(facts, aim, (), ())
    return replace(ways, advice=advise(findings, ways, found, is_windows(facts)))


def _try_all(found: Situation, lanes: Sequence[Lane]) -> Iterable[WayOut | Rejected]:
    """Every road but the driver's, in the order of ``Road``."""
    for road in (
        build_roads.keep,
        build_roads.rebuild,
        build_roads.rebuild_with_ptx,
        build_roads.provide_toolkit,
        build_roads.install_toolkit,
        other_torch,
    ):
        yield road(found)
    yield other_roads.container(found, lanes)
    yield swap(found)


def _plans_with(aim: Goal, facts: Facts, lanes: Sequence[Lane]) -> tuple[WayOut, ...]:
    found = situation(aim, facts)
    return tuple(item for item in _try_all(found, lanes) if isinstance(item, WayOut))


def _without_target(aim: Goal, facts: Facts, error: SplatfixError) -> Ways:
    """No NVIDIA GPU and none named: native code has nothing to be built for, drop-ins need none."""
    bare = Situation(facts, aim, (), ())
    answer = swap(bare)
    shut = (
        Rejected("every road to native code", f"{error.what} For a GPU elsewhere name one: --target sm_120"),
    )
    if isinstance(answer, WayOut):
        return Ways((), (), (answer,), shut)
    return Ways((), (), (), (*shut, answer))


def _notes(found: Situation, *, opened: bool) -> tuple[str, ...]:
    notes = []
    if not opened and len(found.wanted) > 1:
        notes.append(
            f"no road to native code serves {found.words} at once: ask for them one by one with --target"
        )
    if found.away:
        words, one = ", ".join(arch.sm for arch in found.away), len(found.away) == 1
        is_it = f"{words} is not in this machine: it" if one else f"{words} are not in this machine: they"
        notes.append(f"{is_it} can be built for here, and must be shown to run elsewhere")
    lost = [own for own in found.not_asked_for if not any(cubin_runs_on(arch, own) for arch in found.archs)]
    if lost and any(part.code for part in found.parts):
        words = ", ".join(arch.sm for arch in lost)
        notes.append(
            f"to keep serving this machine's own {words}, add --target auto: a rebuild carries only what is named"
        )
    if found.kept and found.aim.source and len(found.kept) < len(found.parts):
        notes.append(
            f"{found.aim.source} may hold {', '.join(found.kept)} too: name the folders of the others in its place"
        )
    known = {"torch", *(canonicalize_name(name) for name in found.subjects)}
    notes += [
        f"--keep {name} names nothing that is here"
        for name in found.aim.keep
        if canonicalize_name(name) not in known
    ]
    return tuple(notes)
