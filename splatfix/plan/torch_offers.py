"""Other builds of torch for a machine, each with the tools to compile beside it, and which of them asks least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splatfix.context.torch_wheels import builds_for_all, preference
from splatfix.core.errors import SplatfixError
from splatfix.core.versions import release
from splatfix.facts import Facts, Torch
from splatfix.knowledge import Arch, drivers
from splatfix.knowledge.cpp_extension import behaviour
from splatfix.knowledge.host_compilers import oldest_gcc_of_torch
from splatfix.knowledge.torch_releases import RankedBuild, TorchBuild
from splatfix.plan.road_tools import Tools, tools_by_hand, tools_from_wheels, tools_here
from splatfix.plan.situation import Situation


@dataclass(frozen=True)
class Offer:
    """Another torch with the tools to compile beside it."""

    ranked: RankedBuild
    tools: Tools

    @property
    def build(self) -> TorchBuild:
        """The published build."""
        return self.ranked.build


def why_torch_stays(found: Situation) -> str:
    """What rules out another torch before any is looked for; "" where nothing does."""
    if "torch" in found.aim.keep:
        return "torch is to be left as it is (--keep torch)"
    kept = [p.name for p in found.parts if p.installed and not p.swap and p.name in found.kept]
    if kept:
        return f"{', '.join(kept)} is to be left as it is (--keep), and was compiled against the torch here"
    if found.platform is None:
        return f"PyTorch publishes no CUDA build for {found.facts.machine.system}"
    return found.no_wheels


def offers_for(found: Situation) -> list[Offer]:
    """Other builds that serve every target under this driver, and beside which the extensions can be compiled."""
    offers: list[Offer] = []
    known: dict[object, Tools | None] = {}
    for ranked in other_builds(found):
        torch = as_torch(ranked.build)
        # what decides on the tools
        key = (torch.cuda, torch.knows_archs, oldest_gcc_of_torch(torch.version))
        if key not in known:
            known[key] = tools_for(found.facts, torch, found.archs)
        tools = known[key]
        if tools is not None:
            offers.append(Offer(ranked, tools))
    return offers


def other_builds(found: Situation, *, leaving_out: str = "") -> list[RankedBuild]:
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


def _is_installed(found: Situation, candidate: TorchBuild) -> bool:
    torch = found.torch
    return torch is not None and _same_release(found, candidate) and torch.cuda == cuda_words(candidate)


def _same_release(found: Situation, candidate: TorchBuild) -> bool:
    return found.torch is not None and found.torch.version.startswith(f"{candidate.release}.")


def is_older(found: Situation, candidate: TorchBuild) -> bool:
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


def tools_for(facts: Facts, torch: Torch, archs: Sequence[Arch]) -> Tools | None:
    """Toolkit and compiler for a torch from wherever they come, the least trouble first; None: nowhere."""
    for make in (tools_here, tools_from_wheels, tools_by_hand):
        try:
            return make(facts, torch, archs)
        except SplatfixError:  # the next one may have it; why each has not is said by its own road
            continue
    return None


def best_offer(found: Situation, offers: Sequence[Offer]) -> Offer:
    """What asks least of the machine; among equals what is known to run, is no step back, and is nearest to what is here."""
    return min(
        offers,
        key=lambda offer: (
            offer.ranked.runs == "unknown",
            preference(found.facts, offer.build, found.archs),
            offer.tools.cost,
        ),
    )


def torch_of_newer_driver(found: Situation) -> tuple[TorchBuild, tuple[int, ...]] | None:
    """The build that only a newer driver starts, with its oldest driver, where no build serves under the driver here."""
    if found.driver is None or why_torch_stays(found) or offers_for(found):
        return None
    for item in other_builds(found, leaving_out="driver"):
        floor = drivers.runtime_floor(item.build.cuda, found.platform or "linux")
        if floor and found.driver < floor and tools_for(found.facts, as_torch(item.build), found.archs):
            return item.build, floor
    return None
