"""Another build of torch, and every extension recompiled: which published build serves every target and asks least."""

from collections.abc import Hashable, Sequence

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.context.torch_wheels import builds_for_all, install_command, no_wheels, preference
from splatfix.core.errors import Rejected
from splatfix.core.versions import dotted, release
from splatfix.knowledge import Arch, drivers
from splatfix.knowledge.cpp_extension import behaviour
from splatfix.knowledge.host_compilers import oldest_gcc_of_torch
from splatfix.knowledge.torch_releases import (
    COMPANIONS,
    RankedBuild,
    TorchBuild,
    how_build_runs,
    wheel_obstacle,
)
from splatfix.model import Torch
from splatfix.model.option import OptionKind, Plan
from splatfix.model.steps import InstallTorch, Reason
from splatfix.plan.backends.native import build_steps
from splatfix.plan.case import Case, for_targets, names_of_archs, not_applicable
from splatfix.plan.tools import Tools, tools_for

_CODE = {
    "cubin": "machine code",
    "ptx": "PTX that the driver compiles",
    "unknown": "code that the tables do not know",
}


class Offer(Struct, frozen=True):
    """Another torch with the tools to compile beside it."""

    ranked: RankedBuild
    tools: Tools


def other_torch(case: Case) -> Plan | Rejected:
    """Install the published build that serves every target under this driver and Python, and asks least of the machine."""
    if obstacle := why_torch_stays(case):
        return not_applicable(obstacle)
    tools, torch = None, case.context.torch
    if torch and not case.torch_obstacles()[0]:
        tools = tools_for(case.context, torch)
    if not torch or not tools:
        offers = offers_for(case)
    else:
        serves = f"not needed: torch {torch.version} has code for {case.names}"
        if tools.cost == 0:
            return not_applicable(f"{serves}, and a toolkit for it is here")
        # a torch that serves the targets is replaced only by what asks less of this machine, and by no older release
        installed = release(torch.version)[:2]
        offers = [item for item in offers_for(case) if release(item.ranked.build.release)[:2] >= installed]
        if not offers:
            return not_applicable(serves)
        least = min((offer.tools for offer in offers), key=lambda item: item.cost)
        if tools.cost <= least.cost:
            asks = "an installed toolkit"
            if least.manual:
                asks = "a toolkit or compiler that you install"
            elif least.before:
                asks = "a toolkit from PyPI wheels"
            return not_applicable(f"{serves}, and another build would ask as much of this machine ({asks})")
    if not offers:
        return not_applicable(_why_no_build(case))
    return _option(case, offers)


def _option(case: Case, offers: Sequence[Offer]) -> Plan:
    best = best_offer(case, offers)
    build = best.ranked.build
    version, step = install_command(build, case.context.facts)
    carries = f"torch {version} {build.tag} carries {_CODE[best.ranked.runs]} for {case.names}"
    driver = case.driver_objection(dotted(build.cuda))
    reasons = [Reason(carries, build.source)]
    why_driver = driver.reason
    if not driver.ok:
        oldest = oldest_driver(build, case.context.archs, case.context.platform or "linux")
        why_driver = f"where it runs, the driver must be {oldest} or newer" if oldest else ""
    if why_driver:
        reasons.append(Reason(why_driver, drivers.source_of_floors(build.cuda, case.context.archs)))
    reasons += best.tools.reasons
    # what else could be taken, and what else changes with it
    cost = best.tools.cost
    as_cheap = [offer.ranked.build for offer in offers if offer is not best and offer.tools.cost == cost]
    if names := ", ".join(f"torch {other.torch} {other.tag}" for other in as_cheap[:3]):
        reasons.append(Reason(f"alternatives: {names}"))
    if lost := _lost_here(case, build):
        reasons.append(Reason(lost))
    rebuilt = {*(canonicalize_name(name) for name in case.subjects), *COMPANIONS, "torch"}
    extensions = case.context.environment.extensions.value or ()
    names_linked = {item.distribution for item in extensions if item.links_torch and item.distribution}
    if linked := ", ".join(sorted(name for name in names_linked if canonicalize_name(name) not in rebuilt)):
        reasons.append(Reason(f"also to be rebuilt, compiled against the installed torch: {linked}"))
    unsure = []
    if best.ranked.runs == "unknown":
        unsure.append(f"what GPU code torch {build.torch} {build.tag} carries for this platform")
    if case.context.python is None:
        unsure.append(f"which Python the environment has, so whether torch {build.torch} has a wheel for it")
    if case.here and driver.ok is None:
        unsure.append(driver.reason)
    options = ["--provide-toolkit"] * best.tools.downloaded
    install = InstallTorch(command=step.command, version=version, tag=build.tag)
    steps = (install, *build_steps(case, best.tools, *options, everything=True))
    return case.make_option(OptionKind.OTHER_TORCH, steps, reasons, unsure)


def oldest_driver(build: TorchBuild, archs: Sequence[Arch], platform: drivers.Platform = "linux") -> str:
    """Return the oldest NVIDIA driver under which a build runs on these GPUs; "" where the tables do not say."""
    floors = [drivers.runtime_floor(build.cuda, platform), *map(drivers.gpu_driver_floor, archs)]
    known = [floor for floor in floors if floor]
    if not known:
        return ""
    return drivers.driver_words(max(known))


def _why_no_build(case: Case) -> str:
    context, builds = case.context, other_builds(case)
    text = "no torch build in the tables supports"
    if builds:
        text = "no toolkit works here with any torch build that would fit"
    text += f" {case.names} on {context.platform} {context.machine.machine}"
    if context.python:
        text += f" with Python {dotted(context.python)}"
    if context.glibc:
        text += f" and glibc {dotted(context.glibc)}"
    if later := torch_of_newer_driver(case):
        build, floor = later
        newer = f"with {drivers.driver_words(floor)} torch {build.torch} {build.tag} would"
        return f"{text} under driver {context.driver_version}; {newer}"
    # where only this Python or this glibc stands in the way
    platform = context.platform or "linux"
    for name in () if builds else ("python", "glibc"):
        for item in other_builds(case, leaving_out=name)[:1]:
            obstacle = wheel_obstacle(item.build, platform, python=context.python, glibc=context.glibc)
            if obstacle:
                return f"{text}: {obstacle.rstrip('.')}"
    if alone := _one_at_a_time(case):
        each = f"{', '.join(alone)}; name one with --target"
        return f"{text} at once; in environments of their own they are served: {each}"
    return text


def _one_at_a_time(case: Case) -> list[str]:
    """Say for each of several targets what serves it alone, as ``sm_61 by torch 2.8.0 cu126``; [] where one has nothing."""
    served: list[str] = []
    for arch in case.context.archs:
        alone = replace(case, context=for_targets(case.context, (arch,)))
        offers = offers_for(alone)
        if alone.context.torch and not alone.torch_obstacles()[0]:
            served.append(f"{arch.sm} by torch {alone.context.torch.version}, which is installed")
        elif offers:
            build = best_offer(alone, offers).ranked.build
            served.append(f"{arch.sm} by torch {build.torch} {build.tag}")
    if len(served) < max(2, len(case.context.archs)):
        return []
    return served


def _lost_here(case: Case, build: TorchBuild) -> str:
    """Say which GPUs of this machine that were not asked for the build does not serve, and why; "" for none known."""
    platform, machine = case.context.platform or "linux", case.context.machine.machine
    lost = [arch for arch in case.not_asked_for if how_build_runs(build, arch, platform, machine) == "no"]
    reason = f"torch {build.torch} {build.tag} has no code for it"
    driver = case.driver_objection(dotted(build.cuda), anywhere=True)
    if driver.ok is False:
        lost, reason = list(case.not_asked_for), driver.reason
    if not lost:
        return ""
    not_served = f"this machine's own {names_of_archs(lost)} is then not served by torch: {reason}"
    return f"{not_served}; an environment of its own for this build avoids that"


def why_torch_stays(case: Case) -> str:
    """Say what rules out another torch before any is looked for; "" where nothing does."""
    if "torch" in case.keep:
        return "torch must not change (--keep torch)"
    compiled = (part.name for part in case.parts if part.installed and not part.dropin)
    if kept := ", ".join(name for name in compiled if name in case.kept):
        return f"{kept} must not change (--keep), and was compiled against the torch here"
    if case.context.platform is None:
        return f"PyTorch publishes no CUDA build for {case.context.machine.system}"
    return no_wheels(case.context.facts)


def as_torch(build: TorchBuild) -> Torch:
    """Return what the facts would say of a published build, once it is installed."""
    version = build.torch.replace("*", "0") + f"+{build.tag}"
    torch, rules = Torch(version, dotted(build.cuda), None, ""), behaviour(version)
    if rules is None:
        return torch
    return replace(torch, knows_archs=rules.supported_arches)


def offers_for(case: Case) -> list[Offer]:
    """List other builds that serve every target under this driver, and beside which the extensions can be compiled."""
    offers: list[Offer] = []
    tools_by_traits: dict[Hashable, Tools | None] = {}
    for ranked in other_builds(case):
        torch = as_torch(ranked.build)
        # the traits that decide on toolkit and compiler: dozens of builds share them, and the choice is slow
        traits = (torch.cuda, torch.knows_archs, oldest_gcc_of_torch(torch.version))
        if traits not in tools_by_traits:
            tools_by_traits[traits] = tools_for(case.context, torch)
        if tools := tools_by_traits[traits]:
            offers.append(Offer(ranked, tools))
    return offers


def other_builds(case: Case, *, leaving_out: str = "") -> list[RankedBuild]:
    """List builds, the installed one left out, that serve every target, best first; unknown ones only where none is known to.
    Leaving ``driver``, ``python`` or ``glibc`` out of it tells what stands in the way."""
    context, driver = case.context, case.driver
    if leaving_out == "driver":
        driver = None
    for unknown in (False, True):
        builds = builds_for_all(
            context.archs, context.facts, driver=driver, leaving_out=leaving_out, include_unknown=unknown
        )
        if builds:
            return builds
    return []


def best_offer(case: Case, offers: Sequence[Offer]) -> Offer:
    """Choose what asks least of the machine; of equals what is known to run, is no step back, and is nearest to what is here."""
    return min(offers, key=lambda offer: (rank_of(case, offer.ranked), offer.tools.cost))


def rank_of(case: Case, item: RankedBuild) -> tuple[bool, tuple[int | bool, ...]]:
    """Rank a build for the targets: first what is known to run, of these what is preferred."""
    return item.runs == "unknown", preference(case.context.facts, item.build, case.context.archs)


def torch_of_newer_driver(case: Case) -> tuple[TorchBuild, tuple[int, ...]] | None:
    """Return the build that only a newer driver starts, with its oldest driver, where no build serves under the driver here."""
    if case.driver is None or why_torch_stays(case) or offers_for(case):
        return None
    for item in other_builds(case, leaving_out="driver"):
        floor = drivers.runtime_floor(item.build.cuda, case.context.platform or "linux")
        if floor and case.driver < floor and tools_for(case.context, as_torch(item.build)):
            return item.build, floor
    return None
