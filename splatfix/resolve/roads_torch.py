"""The road of another torch: which published build serves every target and asks least of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from splatfix.checks._common import pip_of, torch_family
from splatfix.checks.driver import driver_words
from splatfix.checks.torch_build import nearness
from splatfix.core.errors import SplatfixError
from splatfix.facts import Facts, Torch
from splatfix.knowledge import Arch, drivers
from splatfix.knowledge.cpp_extension import behaviour
from splatfix.knowledge.torch_releases import (
    RankedBuild,
    TorchBuild,
    build_runs_on,
    builds_for_arch,
    replacing_command,
    wheel_obstacle,
)
from splatfix.knowledge.wheel_index import COMPANIONS
from splatfix.resolve.plan import Reason, RoadNotTaken
from splatfix.resolve.road_parts import rebuild_steps, shut, way
from splatfix.resolve.road_tools import Tools, tools_by_hand, tools_from_wheels, tools_here
from splatfix.resolve.situation import Situation, driver_objection, own_driver_starts, torch_obstacles
from splatfix.resolve.toolchain import release_numbers
from splatfix.resolve.ways import InstallTorch, Road, WayOut


@dataclass(frozen=True)
class _Offer:
    """Another torch with the tools to compile beside it."""

    ranked: RankedBuild
    tools: Tools

    @property
    def build(self) -> TorchBuild:
        """The published build."""
        return self.ranked.build


def other_torch(found: Situation) -> WayOut | RoadNotTaken:
    """The published build that serves every target under this driver and Python, and asks least of the machine."""
    road = Road.OTHER_TORCH
    if forbidden := _forbidden(found):
        return shut(road, forbidden)
    against, _ = torch_obstacles(found)
    now = _tools_for(found.facts, found.torch, found.archs) if found.torch and not against else None
    serves = f"not needed: torch {found.torch.version if found.torch else ''} has code for {found.words}"
    if now is not None and now.cost == 0:
        return shut(road, f"{serves}, and a toolkit for it is here")
    offers = _offers(found)
    if now is not None:  # a torch that serves is not taken back to an older release
        offers = [offer for offer in offers if not _is_older(found, offer.build)]
        least = min((offer.tools for offer in offers), key=lambda tools: tools.cost, default=None)
        if least is None:
            return shut(road, serves)
        if now.cost <= least.cost:
            why = f"another build would ask as much of this machine ({_asks(least)})"
            return shut(road, f"{serves}, and {why}")
    if not offers:
        return shut(road, _why_no_build(found))
    return _plan_for(found, _best(found, offers), offers)


def _forbidden(found: Situation) -> str:
    """What rules out another torch before any is looked for; "" where nothing does."""
    if "torch" in found.aim.keep:
        return "torch is to be left as it is (--keep torch)"
    kept = [
        part.name for part in found.parts if part.installed and not part.swap and part.name in found.aim.keep
    ]
    if kept:
        return f"{', '.join(kept)} is to be left as it is (--keep), and was compiled against the torch here"
    if found.platform is None:
        return f"PyTorch publishes no CUDA build for {found.facts.machine.system}"
    return found.no_wheels


def _best(found: Situation, offers: Sequence[_Offer]) -> _Offer:
    """What asks least of the machine; among equals what is known to run, is no step back, and is nearest to what is here."""
    return min(
        offers,
        key=lambda offer: (
            offer.tools.cost,
            offer.ranked.runs == "unknown",
            _is_older(found, offer.build),
            nearness(found.facts, offer.build),
        ),
    )


def _plan_for(found: Situation, best: _Offer, offers: Sequence[_Offer]) -> WayOut:
    chosen = best.build
    version, command = torch_command(found, chosen)
    reasons = [Reason(_why_build(found, best.ranked, version), chosen.source), *best.tools.reasons]
    others = [o.build for o in offers if o.build is not chosen and o.tools.cost == best.tools.cost][:3]
    if others:
        reasons.append(Reason("as good: " + ", ".join(f"torch {item.torch} {item.tag}" for item in others)))
    reasons += [Reason(text) for text in _lost_here(found, chosen)]
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


def _offers(found: Situation) -> list[_Offer]:
    offers: list[_Offer] = []
    known: dict[tuple[str | None, tuple[str, ...]], Tools | None] = {}  # what decides on the tools
    for ranked in other_builds(found):
        torch = _as_torch(ranked.build)
        key = (torch.cuda, torch.knows_archs)
        if key not in known:
            known[key] = _tools_for(found.facts, torch, found.archs)
        tools = known[key]
        if tools is not None:
            offers.append(_Offer(ranked, tools))
    return offers


def other_builds(found: Situation, *, leaving_out: str = "") -> list[RankedBuild]:
    """Builds, the installed one left out, that serve every target, best first; unknown ones only where none is known to.

    Args:
        leaving_out: what is not asked: ``driver``, ``python`` or ``glibc``; it tells what stands in the way.
    """
    if found.platform is None or found.no_wheels:
        return []
    python = None if leaving_out == "python" else found.python
    glibc = None if leaving_out == "glibc" else found.glibc
    driver = None if leaving_out == "driver" else found.driver
    for unknown in (False, True):
        per_arch = [
            builds_for_arch(
                arch, found.platform, found.facts.machine.machine, python=python, glibc=glibc,
                driver=driver, include_unknown=unknown,
            )
            for arch in found.archs
        ]  # fmt: skip
        if not per_arch:
            return []
        rest = [{(item.build.release, item.build.tag) for item in other} for other in per_arch[1:]]
        common = [
            item
            for item in per_arch[0]
            if all((item.build.release, item.build.tag) in other for other in rest)
            and not _is_installed(found, item.build)
        ]
        if common:
            return common
    return []


def _is_installed(found: Situation, candidate: TorchBuild) -> bool:
    torch = found.torch
    return torch is not None and _same_release(found, candidate) and torch.cuda == cuda_words(candidate)


def _same_release(found: Situation, candidate: TorchBuild) -> bool:
    return found.torch is not None and found.torch.version.startswith(f"{candidate.release}.")


def _is_older(found: Situation, candidate: TorchBuild) -> bool:
    """Of an older release than the installed one."""
    return (
        found.torch is not None
        and release_numbers(candidate.release)[:2] < release_numbers(found.torch.version)[:2]
    )


def cuda_words(candidate: TorchBuild) -> str:
    """CUDA of a published build, as torch.version.cuda says it."""
    return ".".join(map(str, candidate.cuda))


def _as_torch(candidate: TorchBuild) -> Torch:
    version = candidate.torch.replace("*", "0") + f"+{candidate.tag}"
    rules = behaviour(version)
    return Torch(
        version, cuda_words(candidate), None, "", knows_archs=rules.supported_arches if rules else ()
    )


def _tools_for(facts: Facts, torch: Torch, archs: Sequence[Arch]) -> Tools | None:
    for make in (tools_here, tools_from_wheels, tools_by_hand):
        try:
            return make(facts, torch, archs)
        except SplatfixError:  # the next one may have it; why each has not is said by its own road
            continue
    return None


def _asks(tools: Tools) -> str:
    if tools.by_hand:
        return "a toolkit or compiler to be installed by hand"
    return "a toolkit from PyPI wheels" if tools.before else "a toolkit that is here"


def torch_command(found: Situation, candidate: TorchBuild) -> tuple[str, str]:
    """Version and exact pip command, companions included."""
    return replacing_command(
        candidate.torch, candidate.tag, torch_family(found.facts), pip=pip_of(found.facts)
    )


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
    text = (
        f"no torch build in the tables serves {found.words} on {found.platform} {found.facts.machine.machine}"
    )
    text += f" with Python {found.python[0]}.{found.python[1]}" if found.python else ""
    text += f" and glibc {found.glibc[0]}.{found.glibc[1]}" if found.glibc else ""
    if (later := torch_of_newer_driver(found)) is not None:
        build, floor = later
        need = driver_words(floor)
        return f"{text} under driver {found.driver_words}; with {need} torch {build.torch} {build.tag} would"
    here = other_builds(found)
    if not here and (obstacle := _wheel_obstacle(found)):
        return f"{text}: {obstacle}"
    if alone := _one_at_a_time(found):
        each = f"{', '.join(alone)}; name one with --target"
        return f"{text} at once; in environments of their own they are served: {each}"
    return f"{text}, together with a toolkit that compiles for it" if here else text


def torch_of_newer_driver(found: Situation) -> tuple[TorchBuild, tuple[int, ...]] | None:
    """The build that only a newer driver starts, with its oldest driver, where no build serves under the driver here."""
    if found.driver is None or _forbidden(found) or _offers(found):
        return None
    for item in other_builds(found, leaving_out="driver"):
        floor = drivers.runtime_floor(item.build.cuda, found.platform or "linux")
        if floor and found.driver < floor and _tools_for(found.facts, _as_torch(item.build), found.archs):
            return item.build, floor
    return None


def _wheel_obstacle(found: Situation) -> str:
    """Where only this Python or this glibc stands in the way: which of them, as a clause; else ""."""
    for name in ("python", "glibc"):
        for item in other_builds(found, leaving_out=name)[:1]:
            text = wheel_obstacle(
                item.build, found.platform or "linux", found.facts.machine.machine,
                python=found.python, glibc=found.glibc,
            )  # fmt: skip
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
        elif offers := _offers(alone):
            build = _best(alone, offers).build
            served.append(f"{item.arch.sm} by torch {build.torch} {build.tag}")
        else:
            return []
    return served


def _lost_here(found: Situation, chosen: TorchBuild) -> list[str]:
    """Why GPUs of this machine that were not asked for are not served by the chosen build, as far as that is known."""
    own = found.not_asked_for
    if not own:
        return []
    name = f"torch {chosen.torch} {chosen.tag}"
    if (driver := own_driver_starts(found, cuda_words(chosen))).ok is False:
        words = ", ".join(arch.sm for arch in own)
        return [f"this machine's own {words} is then not served by torch: {driver.why}"]
    platform, machine = found.platform or "linux", found.facts.machine.machine
    lost = [arch.sm for arch in own if build_runs_on(chosen, arch, platform, machine) is False]
    return (
        [f"this machine's own {', '.join(lost)} is then not served by torch: {name} has no code for it"]
        if lost
        else []
    )


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
