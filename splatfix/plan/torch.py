"""The option of another torch: which published build serves every target and asks least of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from splatfix.context import Goal, make_context
from splatfix.context.torch_wheels import builds_for_all, install_command, preference
from splatfix.core.versions import release
from splatfix.facts import Torch
from splatfix.knowledge import drivers
from splatfix.knowledge.cpp_extension import behaviour
from splatfix.knowledge.drivers import driver_words
from splatfix.knowledge.host_compilers import oldest_gcc_of_torch
from splatfix.knowledge.torch_releases import (
    COMPANIONS,
    RankedBuild,
    TorchBuild,
    build_runs_on,
    wheel_obstacle,
)
from splatfix.plan.assessment import Assessment, driver_objection, own_driver_starts, torch_obstacles
from splatfix.plan.compose import make_option
from splatfix.plan.option import Option, OptionKind, rejected
from splatfix.plan.rebuild import Tools, rebuild_steps, tools_for
from splatfix.plan.steps import InstallTorch, Reason


@dataclass(frozen=True)
class Offer:
    """Another torch with the tools to compile beside it."""

    ranked: RankedBuild
    tools: Tools

    @property
    def build(self) -> TorchBuild:
        """The published build."""
        return self.ranked.build


def other_torch(found: Assessment) -> Option:
    """The published build that serves every target under this driver and Python, and asks least of the machine."""
    kind = OptionKind.OTHER_TORCH
    if forbidden := why_torch_stays(found):
        return rejected(kind, forbidden)
    against, _ = torch_obstacles(found)
    now = tools_for(found.context, found.torch) if found.torch and not against else None
    serves = f"not needed: torch {found.torch.version if found.torch else ''} has code for {found.words}"
    if now is not None and now.cost == 0:
        return rejected(kind, f"{serves}, and a toolkit for it is here")
    offers = offers_for(found)
    if now is not None:  # a torch that serves is not replaced by an older release
        offers = [offer for offer in offers if not _is_older(found, offer.build)]
        least = min((offer.tools for offer in offers), key=lambda tools: tools.cost, default=None)
        if least is None:
            return rejected(kind, serves)
        if now.cost <= least.cost:
            why = f"another build would ask as much of this machine ({_asks(least)})"
            return rejected(kind, f"{serves}, and {why}")
    if not offers:
        return rejected(kind, _why_no_build(found))
    return _option(found, best_offer(found, offers), offers)


def _option(found: Assessment, best: Offer, offers: Sequence[Offer]) -> Option:
    chosen = best.build
    version, step = install_command(chosen, found.facts)
    reasons = [Reason(_why_build(found, best.ranked, version), chosen.source), *best.tools.reasons]
    others = [o.build for o in offers if o.build is not chosen and o.tools.cost == best.tools.cost][:3]
    if others:
        names = ", ".join(f"torch {item.torch} {item.tag}" for item in others)
        reasons.append(Reason(f"alternatives: {names}"))
    if lost := _lost_here(found, chosen):
        reasons.append(Reason(lost))
    if linked := ", ".join(_linked_to_torch(found)):
        reasons.append(Reason(f"also to be rebuilt, compiled against the installed torch: {linked}"))
    unsure = []
    if best.ranked.runs == "unknown":
        unsure.append(f"what GPU code torch {chosen.torch} {chosen.tag} carries for this platform")
    if found.python is None:
        unsure.append(f"which Python the environment has, so whether torch {chosen.torch} has a wheel for it")
    if found.here and (driver := driver_objection(found, cuda_words(chosen))).ok is None:
        unsure.append(driver.why)
    options = ("--provide-toolkit",) if best.tools.downloaded else ()
    install = InstallTorch(command=step.command, version=version, tag=chosen.tag)
    steps = (install, *rebuild_steps(found, best.tools, *options, everything=True))
    return make_option(found, OptionKind.OTHER_TORCH, steps, reasons, unsure)


def _asks(tools: Tools) -> str:
    if tools.manual:
        return "a toolkit or compiler that you install"
    return "a toolkit from PyPI wheels" if tools.before else "an installed toolkit"


def _why_build(found: Assessment, ranked: RankedBuild, version: str) -> str:
    how = {
        "cubin": "machine code",
        "ptx": "PTX that the driver compiles",
        "unknown": "code that the tables do not know",
    }
    chosen = ranked.build
    text = f"torch {version} {chosen.tag} carries {how[ranked.runs]} for {found.words}"
    driver = driver_objection(found, cuda_words(chosen))
    if driver.ok:
        return f"{text}; {driver.why}"
    floors = [gpu.version for arch in found.archs if (gpu := drivers.gpu_driver_floor(arch))]
    runtime = drivers.runtime_floor(chosen.cuda, found.platform or "linux")
    floor = max([*floors, *([runtime] if runtime else [])], default=None)
    if found.here or floor is None:
        return text
    return f"{text}; where it runs, the driver must be {driver_words(floor)} or newer"


def _why_no_build(found: Assessment) -> str:
    here = other_builds(found)
    text = (
        "no toolkit works here with any torch build that would fit"
        if here
        else "no torch build in the tables supports"
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


def _wheel_obstacle(found: Assessment) -> str:
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


def _one_at_a_time(found: Assessment) -> list[str]:
    """For each of several targets what serves it alone, as ``sm_61 by torch 2.8.0 cu126``; [] where one has nothing."""
    served = []
    for item in found.targets if len(found.targets) > 1 else ():
        goal = Goal((item.arch,))
        alone = replace(found, context=make_context(found.facts, goal))
        if found.torch is not None and not torch_obstacles(alone)[0]:
            served.append(f"{item.arch.sm} by torch {found.torch.version}, which is installed")
        elif offers := offers_for(alone):
            build = best_offer(alone, offers).build
            served.append(f"{item.arch.sm} by torch {build.torch} {build.tag}")
        else:
            return []
    return served


def _lost_here(found: Assessment, chosen: TorchBuild) -> str:
    """Which GPUs of this machine that were not asked for the chosen build does not serve, and why; "" for none known."""
    platform, machine = found.platform or "linux", found.facts.machine.machine
    lost = [own for own in found.not_asked_for if build_runs_on(chosen, own, platform, machine) is False]
    why = f"torch {chosen.torch} {chosen.tag} has no code for it"
    if (driver := own_driver_starts(found, cuda_words(chosen))).ok is False:
        lost, why = list(found.not_asked_for), driver.why
    if not lost:
        return ""
    words = ", ".join(arch.sm for arch in lost)
    return (
        f"this machine's own {words} is then not served by torch: {why}; "
        "an environment of its own for this build avoids that"
    )


def _linked_to_torch(found: Assessment) -> list[str]:
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


def why_torch_stays(found: Assessment) -> str:
    """What rules out another torch before any is looked for; "" where nothing does."""
    if "torch" in found.keep:
        return "torch must not change (--keep torch)"
    kept = [p.name for p in found.parts if p.installed and not p.dropin and p.name in found.kept]
    if kept:
        return f"{', '.join(kept)} must not change (--keep), and was compiled against the torch here"
    if found.platform is None:
        return f"PyTorch publishes no CUDA build for {found.facts.machine.system}"
    return found.no_wheels


def offers_for(found: Assessment) -> list[Offer]:
    """Other builds that serve every target under this driver, and beside which the extensions can be compiled."""
    offers: list[Offer] = []
    known: dict[object, Tools | None] = {}
    for ranked in other_builds(found):
        torch = as_torch(ranked.build)
        # what decides on the tools
        key = (torch.cuda, torch.knows_archs, oldest_gcc_of_torch(torch.version))
        if key not in known:
            known[key] = tools_for(found.context, torch)
        tools = known[key]
        if tools is not None:
            offers.append(Offer(ranked, tools))
    return offers


def other_builds(found: Assessment, *, leaving_out: str = "") -> list[RankedBuild]:
    """Builds, the installed one left out, that serve every target, best first; unknown ones only where none is known to.

    Args:
        leaving_out: what is not asked: ``driver``, ``python`` or ``glibc``; it tells what stands in the way.
    """
    driver = None if leaving_out == "driver" else found.driver
    for unknown in (False, True):
        every = builds_for_all(
            found.archs, found.facts, driver=driver, leaving_out=leaving_out, include_unknown=unknown
        )
        others = [item for item in every if not _is_installed(found, item.build)]
        if others:
            return others
    return []


def _is_installed(found: Assessment, candidate: TorchBuild) -> bool:
    torch = found.torch
    return (
        torch is not None
        and torch.version.startswith(f"{candidate.release}.")
        and torch.cuda == cuda_words(candidate)
    )


def _is_older(found: Assessment, candidate: TorchBuild) -> bool:
    """Of an older release than the installed one."""
    return found.torch is not None and release(candidate.release)[:2] < release(found.torch.version)[:2]


def cuda_words(candidate: TorchBuild) -> str:
    """CUDA of a published build, as torch.version.cuda says it."""
    return ".".join(map(str, candidate.cuda))


def as_torch(candidate: TorchBuild) -> Torch:
    """What the facts would say of a published build, once it is installed."""
    version = candidate.torch.replace("*", "0") + f"+{candidate.tag}"
    rules = behaviour(version)
    return Torch(
        version, cuda_words(candidate), None, "", knows_archs=rules.supported_arches if rules else ()
    )


def best_offer(found: Assessment, offers: Sequence[Offer]) -> Offer:
    """What asks least of the machine; among equals what is known to run, is no step back, and is nearest to what is here."""
    return min(
        offers,
        key=lambda offer: (
            offer.ranked.runs == "unknown",
            preference(found.facts, offer.build, found.archs),
            offer.tools.cost,
        ),
    )


def torch_of_newer_driver(found: Assessment) -> tuple[TorchBuild, tuple[int, ...]] | None:
    """The build that only a newer driver starts, with its oldest driver, where no build serves under the driver here."""
    if found.driver is None or why_torch_stays(found) or offers_for(found):
        return None
    for item in other_builds(found, leaving_out="driver"):
        floor = drivers.runtime_floor(item.build.cuda, found.platform or "linux")
        if floor and found.driver < floor and tools_for(found.context, as_torch(item.build)):
            return item.build, floor
    return None
