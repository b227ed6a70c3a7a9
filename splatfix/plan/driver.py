"""The option of another driver: suggested only, and only where the driver is what stands in the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from splatfix.context.coverage import judge
from splatfix.core.step import say
from splatfix.core.versions import release
from splatfix.facts import Driver, EntryKind, Fact, Facts
from splatfix.knowledge import drivers
from splatfix.knowledge.drivers import driver_words
from splatfix.plan.assessment import Assessment
from splatfix.plan.compose import make_option
from splatfix.plan.option import Option, OptionKind, rejected
from splatfix.plan.steps import Reason
from splatfix.plan.torch import torch_of_newer_driver

_Need = tuple[tuple[int, ...], str]
"""The oldest driver that would do, and what asks for it."""


def driver(found: Assessment, first_with: Callable[[Facts], Option | None], *, opened: bool) -> Option:
    """Upgrade the driver.

    Args:
        first_with: the first option to native code with other facts.
        opened: some option for native code is available under the driver that is here.
    """
    kind = OptionKind.DRIVER
    if not found.here:
        return rejected(kind, "no target GPU is in this machine, so its driver does not matter")
    if found.repairs:
        return rejected(kind, "what the driver needs is the first step of every option that uses the GPU")
    if found.driver is None:
        return rejected(kind, "the version of the driver is not known")
    need = max(
        [*_gpu_floors(found), *_torch_floor(found), *_ptx_floors(found)], default=None, key=lambda n: n[0]
    )
    if (need is None or found.driver >= need[0]) and not opened:
        need = _floor_of_another_torch(found)
    if need is None or found.driver >= need[0]:
        return rejected(kind, f"driver {found.driver_words} is new enough for what is installed")
    version, why = need
    for arch in found.archs:
        last = drivers.gpu_last_branch(arch)
        if last and version[0] > last[0]:
            return rejected(kind, f"{why}, but driver {last[0]} is the last for {arch.sm}")
    where = "the Windows driver (WSL2 uses it)" if found.facts.machine.wsl else "the NVIDIA driver"
    upgrade = say(f"upgrade {where} to {driver_words(version)} or newer, then reboot")
    then = first_with(_with_driver(found.facts, version))
    if then is None:
        return make_option(found, kind, (upgrade,), (Reason(why),))
    reasons = (Reason(f"{why}; then: {then.title}"), *then.reasons)
    made = make_option(found, kind, (upgrade, *then.steps), reasons, then.unsure)
    return replace(made, proves=then.proves, cannot_prove=then.cannot_prove)


def _with_driver(facts: Facts, version: tuple[int, ...]) -> Facts:
    """The same machine with another driver."""
    level = drivers.cuda_level_at_least(version)
    newer = Driver(driver_words(version), ".".join(map(str, level)) if level else None)
    return replace(facts, machine=replace(facts.machine, driver=Fact(newer, "as it would be")))


def _floor_of_another_torch(found: Assessment) -> _Need | None:
    """The driver that would make another torch available, where no option is."""
    later = torch_of_newer_driver(found)
    if later is None:
        return None
    build, floor = later
    why = f"torch {build.torch} {build.tag}, which serves {found.words}, needs driver {driver_words(floor)}"
    return floor, why


def _gpu_floors(found: Assessment) -> list[_Need]:
    """The oldest drivers for the GPUs here."""
    floors = ((item.arch, drivers.gpu_driver_floor(item.arch)) for item in found.targets if item.here)
    return [
        (floor.version, f"{arch.sm} needs driver {driver_words(floor.version)}")
        for arch, floor in floors
        if floor
    ]


def _torch_floor(found: Assessment) -> list[_Need]:
    """The oldest driver for the CUDA of the installed torch."""
    torch = found.torch
    if torch is None or not torch.cuda:
        return []
    numbers = release(torch.cuda)
    floor = drivers.runtime_floor((numbers[0], numbers[1]), found.platform or "linux")
    return [(floor, f"torch's CUDA {torch.cuda} needs driver {driver_words(floor)}")] if floor else []


def _ptx_floors(found: Assessment) -> list[_Need]:
    """Extensions whose only hope on a target is PTX newer than the driver compiles (error 222)."""
    asked: list[_Need] = []
    for part in found.parts:
        versions = [
            entry.ptx_version
            for group in part.code
            for entry in group.entries
            if entry.kind is EntryKind.PTX and entry.ptx_version
        ]
        cuda = drivers.cuda_of_ptx_isa(max(versions)) if versions else None
        branch = drivers.first_branch_of_cuda(cuda) if cuda else None
        for arch in found.archs if branch else ():
            verdict = judge(part.code, arch, driver_cuda=found.context.driver_level(arch))
            if branch and verdict.too_new_ptx and not verdict.missing:
                why = f"{part.name} has PTX that only driver {branch} or newer compiles for {arch.sm}"
                asked.append(((branch,), why))
    return asked
