"""The roads that change more than the extensions: another torch, a container lane, drop-ins, another driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from splatfix.checks.coverage import judge
from splatfix.checks.driver import driver_words
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import RungName
from splatfix.facts import EntryKind, Fact, Facts, Torch
from splatfix.knowledge import drivers
from splatfix.knowledge.archs import Arch
from splatfix.knowledge.cpp_extension import behaviour
from splatfix.knowledge.torch_releases import (
    RankedBuild,
    TorchBuild,
    build,
    build_runs_on,
    builds_for_arch,
    pip_command,
    releases,
)
from splatfix.resolve.plan import Reason, RoadNotTaken
from splatfix.resolve.roads_build import (
    Tools,
    python_option,
    rebuild_steps,
    shut,
    tools_by_hand,
    tools_from_wheels,
    tools_here,
    way,
)
from splatfix.resolve.situation import NativePart, Situation, driver_objection, torch_obstacles
from splatfix.resolve.swaps import SWAPS, refusal, swap_for_variant
from splatfix.resolve.toolchain import release_numbers
from splatfix.resolve.ways import (
    ByHand,
    GetToolkit,
    InstallTorch,
    Lane,
    Limit,
    Road,
    RunLane,
    ShowIt,
    SwapIn,
    WayOut,
)

_COMPANIONS = ("torchvision", "torchaudio")
_COSTS = {
    0: "a toolkit that is here",
    1: "a toolkit from PyPI wheels",
    2: "a toolkit or compiler to be installed by hand",
}


@dataclass(frozen=True)
class _Offer:
    """Another torch with the tools to compile beside it."""

    ranked: RankedBuild
    tools: Tools
    cost: int
    """Key of ``_COSTS``."""


def other_torch(found: Situation) -> WayOut | RoadNotTaken:
    """The published build that serves every target under this driver and Python, and asks least of the machine."""
    road = Road.OTHER_TORCH
    if "torch" in found.aim.keep:
        return shut(road, "torch is to be left as it is (--keep torch)")
    kept = [
        part.name for part in found.parts if part.installed and not part.swap and part.name in found.aim.keep
    ]
    if kept:
        return shut(
            road,
            f"{', '.join(kept)} is to be left as it is (--keep), and was compiled against the torch here",
        )
    if found.platform is None:
        return shut(road, f"PyTorch publishes no CUDA build for {found.facts.machine.system}")
    against, _ = torch_obstacles(found, found.torch)
    now = _cost_of(_tools_for(found.facts, found.torch, found.archs)) if found.torch and not against else None
    if now == 0 and found.torch:
        return shut(
            road,
            f"not needed: torch {found.torch.version} has code for {found.words}, and a toolkit for it is here",
        )
    offers = _offers(found)
    if not offers:
        return shut(road, _why_no_build(found))
    best = min(
        offers,
        key=lambda item: (
            item.cost,
            item.ranked.runs == "unknown",
            not _same_release(found, item.ranked.build),
        ),
    )
    if now is not None and now <= best.cost and found.torch:
        return shut(
            road, f"not needed: torch {found.torch.version} has code for {found.words}, and another build would ask "
            f"as much of this machine ({_COSTS[best.cost]})",
        )  # fmt: skip
    chosen = best.ranked.build
    version, command = torch_command(found, chosen)
    reasons = [Reason(_why_build(found, best.ranked, version), chosen.source), *best.tools.reasons]
    others = [o.ranked.build for o in offers if o.ranked.build is not chosen and o.cost == best.cost][:3]
    if others:
        reasons.append(Reason("as good: " + ", ".join(f"torch {item.torch} {item.tag}" for item in others)))
    if linked := _linked_to_torch(found):
        reasons.append(
            Reason(
                f"these were compiled against the torch that is here and need a rebuild too: {', '.join(linked)}"
            )
        )
    unsure = (
        []
        if best.ranked.runs != "unknown"
        else [f"what GPU code torch {chosen.torch} {chosen.tag} carries for this platform"]
    )
    if found.here and driver_objection(found, _cuda(chosen)).ok is None:
        unsure.append(driver_objection(found, _cuda(chosen)).why)
    provided = any(isinstance(step, GetToolkit) for step in best.tools.before)
    options = ("--provide-toolkit",) if provided else ()
    steps = (InstallTorch(version, chosen.tag, command), *rebuild_steps(found, best.tools, *options))
    return way(found, road, steps, reasons, unsure)


def _offers(found: Situation) -> list[_Offer]:
    offers: list[_Offer] = []
    known: dict[tuple[str | None, tuple[str, ...]], Tools | None] = {}  # what decides on the tools
    for ranked in _builds(found):
        torch = _as_torch(ranked.build)
        key = (torch.cuda, torch.knows_archs)
        if key not in known:
            known[key] = _tools_for(found.facts, torch, found.archs)
        tools = known[key]
        cost = _cost_of(tools)
        if tools is not None and cost is not None:
            offers.append(_Offer(ranked, tools, cost))
    return offers


def _builds(found: Situation, *, driver: bool = True) -> list[RankedBuild]:
    """Builds that serve every target, best first; those whose code is not known only where none is known to serve."""
    for unknown in (False, True):
        per_arch = [
            builds_for_arch(
                arch, found.platform or "linux", found.facts.machine.machine, python=found.python, glibc=found.glibc,
                driver=found.driver if driver else None, include_unknown=unknown,
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
    return torch is not None and _same_release(found, candidate) and torch.cuda == _cuda(candidate)


def _same_release(found: Situation, candidate: TorchBuild) -> bool:
    return found.torch is not None and found.torch.version.startswith(f"{candidate.release}.")


def _cuda(candidate: TorchBuild) -> str:
    return ".".join(map(str, candidate.cuda))


def _as_torch(candidate: TorchBuild) -> Torch:
    version = candidate.torch.replace("*", "0") + f"+{candidate.tag}"
    rules = behaviour(version)
    return Torch(version, _cuda(candidate), None, "", knows_archs=rules.supported_arches if rules else ())


def _tools_for(facts: Facts, torch: Torch, archs: Sequence[Arch]) -> Tools | None:
    for make in (tools_here, tools_from_wheels, tools_by_hand):
        try:
            return make(facts, torch, archs)
        except SplatfixError:  # the next one may have it; why each has not is said by its own road
            continue
    return None


def _cost_of(tools: Tools | None) -> int | None:
    if tools is None:
        return None
    if any(isinstance(step, ByHand) for step in tools.before):
        return 2
    return 1 if any(isinstance(step, GetToolkit) for step in tools.before) else 0


def torch_command(found: Situation, candidate: TorchBuild) -> tuple[str, str]:
    """Version and exact pip command. Within one release the build is named by its local version, since pip would call
    ``torch==2.8.*`` satisfied by the build that is there."""
    interpreter = found.facts.environment.interpreter.value
    pip = f'"{interpreter.executable}" -m pip' if interpreter else "pip"
    there = {canonicalize_name(item.name) for item in found.facts.environment.distributions.value or ()}
    also = tuple(name for name in _COMPANIONS if name in there)
    version = candidate.torch
    if _same_release(found, candidate) and found.torch is not None:
        plain = found.torch.version.partition("+")[0]
        version = (
            plain if candidate.versions is None or plain in candidate.versions else candidate.versions[-1]
        )
        command = pip_command(version, candidate.tag, also=also, pip=pip)
        return version, command.replace(f"torch=={version}", f"torch=={version}+{candidate.tag}", 1)
    return version, pip_command(version, candidate.tag, also=also, pip=pip)


def _why_build(found: Situation, ranked: RankedBuild, version: str) -> str:
    how = {
        "cubin": "machine code",
        "ptx": "PTX that the driver translates",
        "unknown": "code that the tables do not know",
    }
    chosen = ranked.build
    text = f"torch {version} {chosen.tag} carries {how[ranked.runs]} for {found.words}"
    said = driver_objection(found, _cuda(chosen))
    if said.ok:
        return f"{text}; {said.why}"
    floor = drivers.runtime_floor(chosen.cuda, found.platform or "linux")
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
    later = _builds(found, driver=False)
    if found.driver and later:
        floor = drivers.runtime_floor(later[0].build.cuda, found.platform or "linux")
        have, need = found.driver_words, driver_words(floor or ())
        return (
            f"{text} under driver {have}; with {need} torch {later[0].build.torch} {later[0].build.tag} would"
        )
    tools = [item for item in later if _tools_for(found.facts, _as_torch(item.build), found.archs) is None]
    return f"{text}, together with a toolkit that compiles for it" if tools else text


def _lost_here(found: Situation, chosen: TorchBuild) -> list[str]:
    """GPUs of this machine, not asked for, that the chosen build is known not to run on."""
    here = {
        Arch.parse(gpu.cc)
        for gpu in found.facts.machine.gpus.value or ()
        if gpu.vendor == "nvidia" and gpu.cc
    }
    others = sorted(here - set(found.archs))
    platform, machine = found.platform or "linux", found.facts.machine.machine
    return [arch.sm for arch in others if build_runs_on(chosen, arch, platform, machine) is False]


def _linked_to_torch(found: Situation) -> list[str]:
    ours = {canonicalize_name(part.name) for part in found.parts}
    return sorted(
        {
            item.distribution
            for item in found.facts.environment.extensions.value or ()
            if item.links_torch
            and item.distribution
            and canonicalize_name(item.distribution) not in {*ours, *_COMPANIONS, "torch"}
        }
    )


def container(found: Situation, lanes: Sequence[Lane]) -> WayOut | RoadNotTaken:
    """A lane brings its own torch, compiler-free: it shows what this GPU does with a known stack, and mends nothing here."""
    road = Road.CONTAINER
    machine = found.facts.machine
    if machine.container and "docker" not in machine.tools:
        return shut(road, f"this is a {machine.container} container already; call splatfix on its host")
    if machine.system != "linux" or machine.machine not in ("x86_64", "AMD64"):
        return shut(road, f"the lanes are made for Linux x86_64, this is {machine.system} {machine.machine}")
    if "docker" not in machine.tools:
        return shut(road, "docker was not found on this machine")
    against: list[str] = []
    for lane in (lane for lane in lanes if lane.gpu):
        objection, unsure = _lane_objection(found, lane)
        if objection:
            against.append(f"lane {lane.name}: {objection}")
            continue
        command = f"splatfix certify --container {lane.name}"
        made = way(
            found, road, (RunLane(lane.name, lane.torch, command),),
            (Reason("torch and everything else come from the image; only the driver is this machine's"),), unsure, native=False,
        )  # fmt: skip
        return replace(
            made,
            cannot_prove=(
                *made.cannot_prove,
                Limit(RungName.REPRODUCES, "the environment itself stays as it is"),
            ),
        )
    return shut(road, "; ".join(against) or "no lane with a GPU is defined")


def _lane_objection(found: Situation, lane: Lane) -> tuple[str, list[str]]:
    version = lane.torch.rpartition("==")[2]
    known = build(version)
    if not found.here:
        return f"no {found.words} GPU is in this machine to be passed in", []
    if known is None:
        return "", [f"what GPU code {lane.torch} carries"]
    unsure = []
    for arch in found.archs:
        runs = build_runs_on(known, arch)
        if runs is False:
            return f"{lane.torch} has no code for {arch.sm}", []
        if runs is None:
            unsure.append(f"whether {lane.torch} runs on {arch.sm}")
    said = driver_objection(found, _cuda(known))
    if said.ok is None:
        unsure.append(said.why)
    return (said.why if said.ok is False else ""), unsure


def swap(found: Situation) -> WayOut | RoadNotTaken:
    """Plain PyTorch in place of the extensions: no toolkit, no architecture, the same numbers, far slower."""
    road = Road.SWAP
    kept = [part.name for part in found.parts if part.name in found.aim.keep]
    if kept:
        return shut(road, f"{', '.join(kept)} is to be left as it is (--keep)")
    names, refused = [], []
    for part in found.parts:
        name, why = _stand_in(part)
        if part.swap:
            continue
        if why:
            refused.append(f"{part.name}: {why}")
        else:
            names.append(name)
    if refused:
        return shut(road, "nothing replaces " + "; ".join(refused))
    if found.parts and not names:
        return shut(road, "every extension is one of splatfix's drop-ins already")
    source = found.aim.source or " ".join(names) or "PATH/TO/CHECKOUT"
    command = f"splatfix install {source} --backend pure{python_option(found)}"
    reasons = [Reason("same values and gradients within rounding; far slower than CUDA, for small scenes")]
    if not found.parts:
        reasons.append(
            Reason(
                "which rasterizer your trainer calls decides whether it has a stand-in; the checkout tells"
            )
        )
    against, unsure = torch_obstacles(found, found.torch)
    if not found.wanted and found.torch is not None:
        # ROCm and Metal run plain PyTorch; whether all of it was never tried
        against, unsure = (
            [],
            [f"whether the drop-ins run on anything but the CPU with torch {found.torch.version}"],
        )
    steps: list[InstallTorch | SwapIn | ShowIt] = []
    if found.torch is None:
        candidates = _builds(found)
        newest = releases()[-1]
        version, tag = (
            (candidates[0].build.torch, candidates[0].build.tag)
            if candidates
            else (f"{newest.release}.*", "cpu")
        )
        interpreter = found.facts.environment.interpreter.value
        pip = f'"{interpreter.executable}" -m pip' if interpreter else "pip"
        steps.append(InstallTorch(version, tag, pip_command(version, tag, pip=pip)))
        against = []
    steps += [
        SwapIn(tuple(names) or ("what the checkout calls",), command),
        ShowIt(f"splatfix verify{python_option(found)}", "see the numbers"),
    ]
    made = way(found, road, tuple(steps), reasons, unsure, native=False)
    if against:
        why = f"on that GPU ({'; '.join(against)}); on the CPU it can be shown"
        upper = (RungName.COMPUTES, RungName.TRAINS, RungName.REPRODUCES)
        others = tuple(limit for limit in made.cannot_prove if limit.rung not in upper)
        made = replace(
            made,
            steps=tuple(steps),
            can_prove=tuple(rung for rung in made.can_prove if rung not in upper),
            cannot_prove=(*others, *(Limit(rung, why) for rung in upper)),
        )
    return made


def _stand_in(part: NativePart) -> tuple[str, str]:
    """Name of the drop-in, or why there is none."""
    if part.variant:
        one = swap_for_variant(part.variant)
        return (one.name, "") if one else ("", refusal(part.variant) or "no drop-in was made for it")
    wanted = canonicalize_name(part.name)
    fitting = [item for item in SWAPS if item.distribution == wanted]
    if len(fitting) == 1:
        return fitting[0].name, ""
    if fitting:
        return "", "which of the packages of that name it is cannot be told from here"
    return "", "it has no drop-in"


def driver(found: Situation, again: Callable[[Facts], Iterable[WayOut]]) -> WayOut | RoadNotTaken:
    """Upgrade the driver: told, never done, and only where it is what stands in the way."""
    road = Road.DRIVER
    if not found.here:
        return shut(road, "no target is a GPU of this machine, so its driver plays no part")
    if found.repairs:
        return shut(road, "what the driver needs is the first step of every plan that uses the GPU")
    if found.driver is None:
        return shut(road, "the version of the driver is not known")
    need, why = _needed_driver(found)
    have = found.driver_words
    if need is None or found.driver >= need:
        return shut(road, f"driver {have} is new enough for what is installed")
    words = driver_words(need)
    for arch in found.archs:
        last = drivers.gpu_last_branch(arch)
        if last and need[0] > last[0]:
            return shut(road, f"{why}, but driver {last[0]} is the last for {arch.sm}")
    where = "the Windows driver (WSL2 uses it)" if found.facts.machine.wsl else "the NVIDIA driver"
    step = ByHand(f"upgrade {where} to {words} or newer, then reboot")
    level = drivers.cuda_level_at_least(need)
    present = found.facts.machine.driver.value
    assert present is not None
    newer = replace(present, version=words, cuda=".".join(map(str, level)) if level else present.cuda)
    machine = replace(found.facts.machine, driver=Fact(newer, "as it would be"))
    then = next(
        (item for item in again(replace(found.facts, machine=machine)) if item.road is not Road.SWAP), None
    )
    steps = (step, *(then.steps if then else ()))
    after = f"; then: {then.title}" if then else ""
    made = way(
        found,
        road,
        steps,
        (Reason(f"{why}{after}"), *(then.reasons if then else ())),
        then.unsure if then else (),
    )
    return replace(made, can_prove=then.can_prove, cannot_prove=then.cannot_prove) if then else made


def _needed_driver(found: Situation) -> tuple[tuple[int, ...] | None, str]:
    """The oldest driver for what is installed and for the GPUs here, and what asks for it."""
    asked: list[tuple[tuple[int, ...], str]] = []
    for item in found.wanted:
        floor = drivers.gpu_driver_floor(item.arch) if item.here else None
        if floor:
            asked.append((floor.version, f"{item.arch.sm} needs driver {driver_words(floor.version)}"))
    torch = found.torch
    if torch and torch.cuda:
        numbers = release_numbers(torch.cuda)
        floor_of_cuda = drivers.runtime_floor((numbers[0], numbers[1]), found.platform or "linux")
        if floor_of_cuda:
            need = driver_words(floor_of_cuda)
            asked.append((floor_of_cuda, f"torch's CUDA {torch.cuda} needs driver {need}"))
    asked += _ptx_asks(found)
    return max(asked, default=(None, ""), key=lambda item: item[0] or ())


def _ptx_asks(found: Situation) -> list[tuple[tuple[int, ...], str]]:
    """Extensions whose only hope on a target is PTX newer than the driver reads (error 222)."""
    asked: list[tuple[tuple[int, ...], str]] = []
    for part in found.parts:
        for arch in found.archs:
            verdict = judge(part.code, arch, driver_cuda=found.driver_level)
            versions = [
                entry.ptx_version
                for group in part.code
                for entry in group.entries
                if entry.kind is EntryKind.PTX and entry.ptx_version
            ]
            cuda = drivers.cuda_of_ptx_isa(max(versions)) if versions else None
            branch = drivers.first_branch_of_cuda(cuda) if cuda else None
            if verdict.too_new_ptx and not verdict.missing and branch:
                asked.append(
                    (
                        (branch,),
                        f"{part.name} holds PTX that only driver {branch} or newer translates for {arch.sm}",
                    )
                )
    return asked
