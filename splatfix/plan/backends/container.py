"""A container lane: it brings its own torch, shows what this GPU does with a known stack, and changes nothing here."""

from splatfix.core.errors import Rejected
from splatfix.core.proof import RungName
from splatfix.core.step import Command
from splatfix.core.versions import dotted
from splatfix.knowledge.torch_releases import build, build_runs_on
from splatfix.model.option import LaneSummary, OptionKind, Plan
from splatfix.model.steps import Reason, RunLane
from splatfix.plan.case import Case, not_applicable, without_rungs


def container(case: Case) -> Plan | Rejected:
    """Run the first lane with a GPU that serves the targets."""
    machine = case.context.machine
    if machine.container and "docker" not in machine.tools:
        return not_applicable(f"this is a {machine.container} container already; call splatfix on its host")
    if machine.system != "linux" or machine.machine not in ("x86_64", "AMD64"):
        return not_applicable(
            f"the lanes are made for Linux x86_64, this is {machine.system} {machine.machine}"
        )
    if "docker" not in machine.tools:
        return not_applicable("docker was not found on this machine")
    against: list[str] = []
    for lane in case.lanes:
        if not lane.gpu:
            continue
        objection, unsure = _objection(case, lane)
        if not objection:
            command = Command(("splatfix", "certify", "--container", lane.name))
            reason = "torch and everything else come from the image; only the driver is this machine's"
            step = RunLane(command=command, lane=lane.name, torch=lane.torch)
            option = case.make_option(OptionKind.CONTAINER, (step,), (Reason(reason),), unsure)
            return without_rungs(option, [RungName.REPRODUCES], "the environment itself is not changed")
        against.append(f"lane {lane.name}: {objection}")
    return not_applicable("; ".join(against) or "no lane with a GPU is defined")


def _objection(case: Case, lane: LaneSummary) -> tuple[str, list[str]]:
    """Say why a lane does not serve the targets, or "" and what is not known about it."""
    release = build(lane.torch.rpartition("==")[2])
    if not case.here:
        return f"this machine has no {case.names} GPU to pass in", []
    if release is None:
        return "", [f"what GPU code {lane.torch} carries"]
    unsure = []
    for arch in case.context.archs:
        runs = build_runs_on(release, arch)
        if runs is False:
            return f"{lane.torch} has no code for {arch.sm}", []
        if runs is None:
            unsure.append(f"whether {lane.torch} runs on {arch.sm}")
    driver = case.driver_objection(dotted(release.cuda))
    if driver.ok is False:
        return driver.reason, unsure
    if driver.ok is None:
        unsure.append(driver.reason)
    return "", unsure
