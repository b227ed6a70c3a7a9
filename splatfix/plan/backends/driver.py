"""Another driver: suggested only, and only where the driver is what stands in the way."""

from collections.abc import Callable

from msgspec.structs import replace

from splatfix.core.errors import Rejected
from splatfix.core.step import say
from splatfix.core.versions import dotted
from splatfix.facts import EntryKind
from splatfix.knowledge import drivers
from splatfix.model import Driver
from splatfix.model.option import OptionKind, Plan
from splatfix.model.steps import Reason
from splatfix.plan.backends.torch import torch_of_newer_driver
from splatfix.plan.case import Case, context_to_be, not_applicable


def driver(case: Case, first_native: Callable[[Case], Plan | None], *, opened: bool) -> Plan | Rejected:
    """Upgrade the driver, then do what it makes possible; ``opened`` says that the one here leaves some native plan."""
    if not case.here:
        return not_applicable("no target GPU is in this machine, so its driver does not matter")
    if case.repairs:
        return not_applicable("what the driver needs is the first step of every option that uses the GPU")
    if case.driver is None:
        return not_applicable("the version of the driver is not known")
    need = _need(case, opened=opened)
    if need is None:
        return not_applicable(f"driver {case.context.driver_version} is new enough for what is installed")
    version, why, source = need
    for arch in case.context.archs:
        last = drivers.gpu_last_branch(arch)
        if last and version[0] > last[0]:
            return not_applicable(f"{why}, but driver {last[0]} is the last for {arch.sm}")
    which = "the NVIDIA driver"
    if case.context.machine.wsl:
        which = "the Windows driver (WSL2 uses it)"
    upgrade = say(f"upgrade {which} to {drivers.driver_words(version)} or newer, then reboot")
    level = drivers.cuda_level_at_least(version)
    newer = Driver(drivers.driver_words(version), dotted(level or ()) or None)
    following = first_native(replace(case, context=context_to_be(case.context, driver=newer)))
    if following is None:
        return case.make_option(OptionKind.DRIVER, (upgrade,), (Reason(why, source),))
    reasons = (Reason(f"{why}; then: {following.title}", source), *following.reasons)
    plan = case.make_option(OptionKind.DRIVER, (upgrade, *following.steps), reasons, following.unsure)
    return replace(plan, proves=following.proves, cannot_prove=following.cannot_prove)


def _need(case: Case, *, opened: bool) -> tuple[tuple[int, ...], str, str] | None:
    """Return the oldest driver that would do, of what asks for most, why, and its source, where it is newer than the one here."""
    needs: list[tuple[tuple[int, ...], str, str]] = []
    for target in case.context.targets:
        floor = drivers.gpu_driver_floor(target.arch)
        if target.here and floor:
            source = drivers.source_of_floors(None, [target.arch])
            needs.append((floor, f"{target.arch.sm} needs driver {drivers.driver_words(floor)}", source))
    if cuda := case.context.torch_cuda:
        floor = drivers.runtime_floor(cuda, case.context.platform or "linux")
        if floor:
            source = drivers.source_of_floors(cuda, ())
            text = f"torch's CUDA {dotted(cuda)} needs driver {drivers.driver_words(floor)}"
            needs.append((floor, text, source))
    # extensions whose only hope on a target is PTX newer than the driver compiles (error 222)
    for part in case.parts:
        entries = (entry for group in part.code for entry in group.entries if entry.kind is EntryKind.PTX)
        newest_ptx = max((entry.ptx_version for entry in entries if entry.ptx_version), default=None)
        of_ptx = newest_ptx and drivers.cuda_of_ptx_isa(newest_ptx)
        branch = of_ptx and drivers.first_branch_of_cuda(of_ptx)
        for arch in case.context.archs:
            verdict = case.context.judge(part.code, arch)
            if branch and verdict.too_new_ptx and not verdict.missing:
                reason = f"{part.name} has PTX that only driver {branch} or newer compiles for {arch.sm}"
                needs.append(((branch,), reason, ""))
    newest = max(needs, default=None, key=lambda need: need[0])
    if newest and case.driver and case.driver < newest[0]:
        return newest
    if opened:
        return None
    # where no option is left at all, the driver may be what keeps another torch away
    later = torch_of_newer_driver(case)
    if later is None:
        return None
    build, floor = later
    torch = f"torch {build.torch} {build.tag}, which serves {case.names}"
    source = drivers.source_of_floors(build.cuda, case.context.archs)
    return floor, f"{torch}, needs driver {drivers.driver_words(floor)}", source
