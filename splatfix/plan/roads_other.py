"""The roads around compiling: a container lane, another driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from splatfix.context import Rejected
from splatfix.context.coverage import judge
from splatfix.context.targets import driver_level
from splatfix.core.proof import RungName
from splatfix.core.versions import release
from splatfix.facts import Driver, EntryKind, Fact, Facts
from splatfix.knowledge import drivers
from splatfix.knowledge.drivers import driver_words
from splatfix.knowledge.torch_releases import build, build_runs_on
from splatfix.plan.plan import Reason
from splatfix.plan.road_parts import shut, way
from splatfix.plan.situation import Situation, driver_objection
from splatfix.plan.torch_offers import cuda_words, torch_of_newer_driver
from splatfix.plan.ways import (
    ByHand,
    Lane,
    Limit,
    Road,
    RunLane,
    WayOut,
)


def container(found: Situation, lanes: Sequence[Lane]) -> WayOut | Rejected:
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
            found,
            road,
            (RunLane(lane.name, lane.torch, command),),
            (Reason("torch and everything else come from the image; only the driver is this machine's"),),
            unsure,
            native=False,
        )
        return replace(
            made,
            can_prove=tuple(rung for rung in made.can_prove if rung is not RungName.REPRODUCES),
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
    said = driver_objection(found, cuda_words(known))
    if said.ok is None:
        unsure.append(said.why)
    return (said.why if said.ok is False else ""), unsure


def driver(
    found: Situation, again: Callable[[Facts], Iterable[WayOut]], *, opened: bool
) -> WayOut | Rejected:
    """Upgrade the driver: told, never done, and only where it is what stands in the way.

    Args:
        again: the ways out with other facts.
        opened: some road to native code is open under the driver that is here.
    """
    road = Road.DRIVER
    if not found.here:
        return shut(road, "no target is a GPU of this machine, so its driver plays no part")
    if found.repairs:
        return shut(road, "what the driver needs is the first step of every plan that uses the GPU")
    if found.driver is None:
        return shut(road, "the version of the driver is not known")
    need, why = _needed_driver(found)
    if (need is None or found.driver >= need) and not opened:
        need, why = _driver_of_another_torch(found)
    if need is None or found.driver >= need:
        return shut(road, f"driver {found.driver_words} is new enough for what is installed")
    for arch in found.archs:
        last = drivers.gpu_last_branch(arch)
        if last and need[0] > last[0]:
            return shut(road, f"{why}, but driver {last[0]} is the last for {arch.sm}")
    then = next((item for item in again(_with_driver(found.facts, need)) if item.road is not Road.SWAP), None)
    where = "the Windows driver (WSL2 uses it)" if found.facts.machine.wsl else "the NVIDIA driver"
    step = ByHand(f"upgrade {where} to {driver_words(need)} or newer, then reboot")
    if then is None:
        return way(found, road, (step,), (Reason(why),))
    reasons = (Reason(f"{why}; then: {then.title}"), *then.reasons)
    made = way(found, road, (step, *then.steps), reasons, then.unsure)
    return replace(made, can_prove=then.can_prove, cannot_prove=then.cannot_prove)


def _with_driver(facts: Facts, version: tuple[int, ...]) -> Facts:
    """The same machine with another driver."""
    level = drivers.cuda_level_at_least(version)
    newer = Driver(driver_words(version), ".".join(map(str, level)) if level else None)
    return replace(facts, machine=replace(facts.machine, driver=Fact(newer, "as it would be")))


def _driver_of_another_torch(found: Situation) -> tuple[tuple[int, ...] | None, str]:
    """The driver that would open the road of another torch, where no road is open, and why."""
    later = torch_of_newer_driver(found)
    if later is None:
        return None, ""
    build, floor = later
    return (
        floor,
        f"torch {build.torch} {build.tag}, which serves {found.words}, needs driver {driver_words(floor)}",
    )


def _needed_driver(found: Situation) -> tuple[tuple[int, ...] | None, str]:
    """The oldest driver for what is installed and for the GPUs here, and what asks for it."""
    asked: list[tuple[tuple[int, ...], str]] = []
    for item in found.wanted:
        floor = drivers.gpu_driver_floor(item.arch) if item.here else None
        if floor:
            asked.append((floor.version, f"{item.arch.sm} needs driver {driver_words(floor.version)}"))
    torch = found.torch
    if torch and torch.cuda:
        numbers = release(torch.cuda)
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
            verdict = judge(part.code, arch, driver_cuda=driver_level(found.facts, arch))
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
