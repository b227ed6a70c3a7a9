"""The option of a container lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from splatfix.core.proof import RungName
from splatfix.core.step import Command
from splatfix.knowledge.torch_releases import build, build_runs_on
from splatfix.plan.assessment import Assessment, driver_objection
from splatfix.plan.compose import make_option
from splatfix.plan.option import Lane, Limit, Option, OptionKind, rejected
from splatfix.plan.steps import Reason, RunLane
from splatfix.plan.torch import cuda_words


def container(found: Assessment, lanes: Sequence[Lane]) -> Option:
    """A lane brings its own torch: it shows what this GPU does with a known stack, and changes nothing here."""
    kind = OptionKind.CONTAINER
    machine = found.facts.machine
    if machine.container and "docker" not in machine.tools:
        return rejected(kind, f"this is a {machine.container} container already; call splatfix on its host")
    if machine.system != "linux" or machine.machine not in ("x86_64", "AMD64"):
        return rejected(
            kind, f"the lanes are made for Linux x86_64, this is {machine.system} {machine.machine}"
        )
    if "docker" not in machine.tools:
        return rejected(kind, "docker was not found on this machine")
    against: list[str] = []
    for lane in (lane for lane in lanes if lane.gpu):
        objection, unsure = _objection(found, lane)
        if not objection:
            return _run(found, lane, unsure)
        against.append(f"lane {lane.name}: {objection}")
    return rejected(kind, "; ".join(against) or "no lane with a GPU is defined")


def _run(found: Assessment, lane: Lane, unsure: Sequence[str]) -> Option:
    command = Command(("splatfix", "certify", "--container", lane.name))
    reason = Reason("torch and everything else come from the image; only the driver is this machine's")
    step = RunLane(command=command, lane=lane.name, torch=lane.torch)
    made = make_option(found, OptionKind.CONTAINER, (step,), (reason,), unsure, native=False)
    limit = Limit(RungName.REPRODUCES, "the environment itself is not changed")
    return replace(
        made,
        proves=tuple(rung for rung in made.proves if rung is not limit.rung),
        cannot_prove=(*made.cannot_prove, limit),
    )


def _objection(found: Assessment, lane: Lane) -> tuple[str, list[str]]:
    """Why a lane does not serve the targets, or "" and what is not known about it."""
    known = build(lane.torch.rpartition("==")[2])
    if not found.here:
        return f"this machine has no {found.words} GPU to pass in", []
    if known is None:
        return "", [f"what GPU code {lane.torch} carries"]
    unsure = []
    for arch in found.archs:
        runs = build_runs_on(known, arch)
        if runs is False:
            return f"{lane.torch} has no code for {arch.sm}", []
        if runs is None:
            unsure.append(f"whether {lane.torch} runs on {arch.sm}")
    driver = driver_objection(found, cuda_words(known))
    if driver.ok is None:
        unsure.append(driver.why)
    return (driver.why if driver.ok is False else ""), unsure
