"""The road of another torch: which published build serves every target and asks least of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from packaging.utils import canonicalize_name

from splatfix.context import Rejected
from splatfix.context.readings import is_windows
from splatfix.context.torch_wheels import install_command
from splatfix.knowledge import drivers
from splatfix.knowledge.drivers import driver_words
from splatfix.knowledge.torch_releases import (
    COMPANIONS,
    RankedBuild,
    TorchBuild,
    build_runs_on,
    wheel_obstacle,
)
from splatfix.plan.plan import Reason
from splatfix.plan.road_parts import rebuild_steps, shut, way
from splatfix.plan.road_tools import Tools
from splatfix.plan.situation import Situation, driver_objection, own_driver_starts, torch_obstacles
from splatfix.plan.torch_offers import (
    Offer,
    best_offer,
    cuda_words,
    is_older,
    offers_for,
    other_builds,
    tools_for,
    torch_of_newer_driver,
    why_torch_stays,
)
from splatfix.plan.ways import InstallTorch, Road, WayOut


def other_torch(found: Situation) -> WayOut | Rejected:
    """The published build that serves every target under this driver and Python, and asks least of the machine."""
    road = Road.OTHER_TORCH
    if forbidden := why_torch_stays(found):
        return shut(road, forbidden)
    against, _ = torch_obstacles(found)
    now = tools_for(found.facts, found.torch, found.archs) if found.torch and not against else None
    serves = f"not needed: torch {found.torch.version if found.torch else ''} has code for {found.words}"
    if now is not None and now.cost == 0:
        return shut(road, f"{serves}, and a toolkit for it is here")
    offers = offers_for(found)
    if now is not None:  # a torch that serves is not taken back to an older release
        offers = [offer for offer in offers if not is_older(found, offer.build)]
        least = min((offer.tools for offer in offers), key=lambda tools: tools.cost, default=None)
        if least is None:
            return shut(road, serves)
        if now.cost <= least.cost:
            why = f"another build would ask as much of this machine ({_asks(least)})"
            return shut(road, f"{serves}, and {why}")
    if not offers:
        return shut(road, _why_no_build(found))
    return _plan_for(found, best_offer(found, offers), offers)


def _plan_for(found: Situation, best: Offer, offers: Sequence[Offer]) -> WayOut:
    chosen = best.build
    version, pip_step = install_command(chosen, found.facts)
    command = pip_step.line(windows=is_windows(found.facts))
    reasons = [Reason(_why_build(found, best.ranked, version), chosen.source), *best.tools.reasons]
    others = [o.build for o in offers if o.build is not chosen and o.tools.cost == best.tools.cost][:3]
    if others:
        reasons.append(Reason("as good: " + ", ".join(f"torch {item.torch} {item.tag}" for item in others)))
    if lost := _lost_here(found, chosen):
        reasons.append(Reason(lost))
    if linked := _linked_to_torch(found):
        names = ", ".join(linked)
        reasons.append(
            Reason(f"these were compiled against the torch that is here and need a rebuild too: {names}")
        )
    unsure = []
    if best.ranked.runs == "unknown":
        unsure.append(f"what GPU code torch {chosen.torch} {chosen.tag} carries for this platform")
    if found.python is None:
        unsure.append(
            f"which Python the environment has, and so whether torch {chosen.torch} has a wheel for it"
        )
    if found.here and (said := driver_objection(found, cuda_words(chosen))).ok is None:
        unsure.append(said.why)
    options = ("--provide-toolkit",) if best.tools.downloaded else ()
    install = InstallTorch(version, chosen.tag, command)
    steps = (install, *rebuild_steps(found, best.tools, *options, everything=True))
    return way(found, Road.OTHER_TORCH, steps, reasons, unsure)


def _asks(tools: Tools) -> str:
    if tools.by_hand:
        return "a toolkit or compiler to be installed by hand"
    return "a toolkit from PyPI wheels" if tools.before else "a toolkit that is here"


def _why_build(found: Situation, ranked: RankedBuild, version: str) -> str:
    how = {
        "cubin": "machine code",
        "ptx": "PTX that the driver translates",
        "unknown": "code that the tables do not know",
    }
    chosen = ranked.build
    text = f"torch {version} {chosen.tag} carries {how[ranked.runs]} for {found.words}"
    said = driver_objection(found, cuda_words(chosen))
    if said.ok:
        return f"{text}; {said.why}"
    floors = [gpu.version for arch in found.archs if (gpu := drivers.gpu_driver_floor(arch))]
    floor = max(
        [*floors, *filter(None, [drivers.runtime_floor(chosen.cuda, found.platform or "linux")])],
        default=None,
    )
    return (
        text
        if found.here or floor is None
        else f"{text}; where it runs, the driver must be {driver_words(floor)} or newer"
    )


def _why_no_build(found: Situation) -> str:
    here = other_builds(found)
    text = (
        "no toolkit compiles here beside any torch build that may serve"
        if here
        else "no torch build in the tables serves"
    )
    text += f" {found.words} on {found.platform} {found.facts.machine.machine}"
    text += f" with Python {found.python[0]}.{found.python[1]}" if found.python else ""
    text += f" and glibc {found.glibc[0]}.{found.glibc[1]}" if found.glibc else ""
    if (later := torch_of_newer_driver(found)) is not None:
        build, floor = later
        need = driver_words(floor)
        return f"{text} under driver {found.driver_words}; with {need} torch {build.torch} {build.tag} would"
    if not here and (obstacle := _wheel_obstacle(found)):
        return f"{text}: {obstacle}"
    if alone := _one_at_a_time(found):
        each = f"{', '.join(alone)}; name one with --target"
        return f"{text} at once; in environments of their own they are served: {each}"
    return text


def _wheel_obstacle(found: Situation) -> str:
    """Where only this Python or this glibc stands in the way: which of them, as a clause; else ""."""
    for name in ("python", "glibc"):
        for item in other_builds(found, leaving_out=name)[:1]:
            text = wheel_obstacle(
                item.build,
                found.platform or "linux",
                found.facts.machine.machine,
                python=found.python,
                glibc=found.glibc,
            )
            if text:
                return text.rstrip(".")
    return ""


def _one_at_a_time(found: Situation) -> list[str]:
    """For each of several targets what serves it alone, as ``sm_61 by torch 2.8.0 cu126``; () where one has nothing."""
    served = []
    for item in found.wanted if len(found.wanted) > 1 else ():
        alone = replace(found, wanted=(item,))
        if found.torch is not None and not torch_obstacles(alone)[0]:
            served.append(f"{item.arch.sm} by torch {found.torch.version}, which is here")
        elif offers := offers_for(alone):
            build = best_offer(alone, offers).build
            served.append(f"{item.arch.sm} by torch {build.torch} {build.tag}")
        else:
            return []
    return served


def _lost_here(found: Situation, chosen: TorchBuild) -> str:
    """Which GPUs of this machine that were not asked for the chosen build does not serve, and why; "" for none known."""
    platform, machine = found.platform or "linux", found.facts.machine.machine
    lost = [own for own in found.not_asked_for if build_runs_on(chosen, own, platform, machine) is False]
    why = f"torch {chosen.torch} {chosen.tag} has no code for it"
    if (driver := own_driver_starts(found, cuda_words(chosen))).ok is False:
        lost, why = list(found.not_asked_for), driver.why
    words = ", ".join(arch.sm for arch in lost)
    spared = "an environment of its own for this build spares it"
    return f"this machine's own {words} is then not served by torch: {why}; {spared}" if lost else ""


def _linked_to_torch(found: Situation) -> list[str]:
    ours = {canonicalize_name(part.name) for part in found.parts}
    return sorted(
        {
            item.distribution
            for item in found.facts.environment.extensions.value or ()
            if item.links_torch
            and item.distribution
            and canonicalize_name(item.distribution) not in {*ours, *COMPANIONS, "torch"}
        }
    )
