"""The environment and the GPU of a certification: what it needs before it runs, and what its certificate is valid for."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct
from packaging.utils import canonicalize_name

import splatfix
from splatfix.certify.model import SceneRun
from splatfix.checks.extension.packages import variant_names
from splatfix.context import make_context
from splatfix.context.commands import lacking, pip
from splatfix.core.codec import from_json, parse_json, to_json
from splatfix.core.errors import Rejected, SplatfixError
from splatfix.core.files import dumps
from splatfix.core.step import Command, run
from splatfix.core.words import counted
from splatfix.model import Facts

AUTO = "auto"

_DROPIN_OF = {"inria": "diff-gaussian-rasterization", "gsplat": "splatfix-gsplat-csrc"}
"""By renderer, the drop-in with which it runs on a CPU too."""
_HOST = "SPLATFIX_CONTAINER"
"""The variable of a container in which its host tells, as JSON, what only the host knows."""
NOT_CALLED = frozenset({"stopthepop"})
"""Variants of Inria's rasterizer with settings that the smoke trainer does not know."""


def packages_obstacle(facts: Facts, python: str, needs: tuple[str, ...]) -> Rejected | None:
    """Reject an environment whose interpreter does not work or lacks one of these distributions (exit code 3)."""
    environment = facts.environment
    if environment.interpreter.value is None:
        problem = f"Cannot run {python}: {environment.interpreter.error}"
        return Rejected.of("certify.prerequisites-missing", problem=problem)
    missing = lacking(facts, needs)
    if not missing:
        return None
    choose = "Choose the environment of your splatting stack"
    todo = (
        pip(facts, "install", *missing, text="Install them"),
        run("splatfix", "certify", "--python", "FOLDER", text=choose),
    )
    problem = f"This environment lacks {', '.join(missing)}."
    return Rejected.of("certify.prerequisites-missing", problem=problem, todo=todo)


def gpu_obstacle(device: str, facts: Facts) -> Rejected | None:
    """Reject a GPU that was asked for and that programs do not see (exit code 3): its diagnosis would be of nothing."""
    if device == "cpu" or make_context(facts).visible_gpus:
        return None
    return Rejected.of("certify.no-gpu-to-judge", device=device)


def renderer_for(renderer: str, device: str, facts: Facts) -> str:
    """Return the renderer as asked; ``auto`` is that of the rasterizer in the environment, Inria's before gsplat's, where it runs
    on the device and the trainer can call it, else splatfix's own. On a CPU only splatfix's drop-ins run.

    Raises:
        SplatfixError: ``renderer-needs-gpu`` (exit code 2) for one with CUDA kernels only, on a CPU.
    """
    runs_here = list(_DROPIN_OF)
    if device == "cpu":
        installed = facts.environment.distributions.value or ()
        dropins = {canonicalize_name(item.name) for item in installed if item.made_by_splatfix == "drop-in"}
        runs_here = [name for name, dropin in _DROPIN_OF.items() if dropin in dropins]
    if renderer == AUTO:
        callable_here = {"gsplat"} & {*(facts.environment.modules.value or ())}
        for package in facts.environment.packages.value or ():
            if package.module == "diff_gaussian_rasterization" and {*variant_names(package)} - NOT_CALLED:
                callable_here.add("inria")
        return next((name for name in runs_here if name in callable_here), "torch")
    if renderer == "torch" or renderer in runs_here:
        return renderer
    raise SplatfixError.of("certify.renderer-needs-gpu", renderer=renderer)


def device_for(device: str, facts: Facts) -> str:
    """Return the device as asked; ``auto`` is the GPU where there is one and torch is a CUDA build: that it then fails is a
    result, and no reason to use the CPU instead."""
    if device != AUTO:
        return device
    torch = facts.environment.torch.value
    return "cuda" if make_context(facts).visible_gpus and torch and torch.cuda else "cpu"


class Host(Struct, frozen=True):
    """Where a certification in a container runs, and how it is repeated."""

    container: str = ""
    """The lane, the id of its image, name and id of the image that was made from; "" outside of one."""
    repeat: Command | None = None
    """The host's command line for the same."""

    @property
    def variables(self) -> dict[str, str]:
        """Those of the container's environment that tell it."""
        return {_HOST: dumps(to_json(self))}


def told_by_host() -> Host:
    """Return what the host of this container told."""
    return from_json(Host, parse_json(os.environ.get(_HOST, "{}")))


def environment_of(facts: Facts, scenes: Sequence[SceneRun], device: str) -> dict[str, str]:
    """Name everything as a report shows it; what the trainer told of itself wins over what was found from outside. Which GPU
    ``device`` means is only certain where CUDA's own order is known, or all are alike."""
    interpreter, torch = facts.environment.interpreter.value, facts.environment.torch.value
    gpus, driver = facts.machine.gpus.value or (), facts.machine.driver.value
    used, name = None, "none used" if gpus else "none"
    if device != "cpu":
        used = make_context(facts).gpu_of(device)
        told = [run.record.machine.gpu for run in scenes if run.record.machine.gpu]
        name = f"{next(iter(told), used.name if used else 'unknown')} ({device})"
    environment = {
        "splatfix": splatfix.__version__,
        "system": f"{facts.machine.distribution or facts.machine.system} {facts.machine.machine}",
        "python": interpreter.version if interpreter else "unknown",
        "torch": torch.version if torch else "unknown",
        "GPU": name,
        "driver": (driver.version or "unknown") if driver else "none",
    }
    if others := [gpu.name for gpu in gpus if gpu != used]:
        environment["other GPUs"] = ", ".join(others)
    for trained in scenes:
        machine = trained.record.machine
        if machine.cpu:
            cores, threads = counted(machine.cores or 0, "core"), counted(machine.threads or 0, "thread")
            environment["CPU"] = f"{machine.cpu}, {cores}, {threads}"
        if trained.record.memory.limit:
            environment["memory"] = f"{trained.record.memory.limit / 2**30:.1f} GiB"
        for part, ran in trained.record.implementations.items():
            environment[part] = " ".join(filter(None, (ran.name, ran.version, ran.engine)))
    if container := told_by_host().container:
        environment["container"] = container
    return environment
