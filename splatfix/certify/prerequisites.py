"""What a certification needs before it runs: packages, a device, and the renderer that trains on it."""

from __future__ import annotations

import sys

from packaging.utils import canonicalize_name

from splatfix.checks.extension.packages import variant_names
from splatfix.context import make_context
from splatfix.context.commands import lacking, pip
from splatfix.core.errors import Rejected, SplatfixError
from splatfix.core.step import run
from splatfix.model import Facts

AUTO = "auto"
VERIFY_NEEDS = ("torch",)

_DROPIN_OF = {"inria": "diff-gaussian-rasterization", "gsplat": "splatfix-gsplat-csrc"}
"""By renderer, the drop-in with which it runs on a CPU too."""
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
    todo = [
        pip(facts, "install", *missing, text="Install them"),
        run(
            "splatfix", "certify", "--python", "FOLDER", text="Choose the environment of your splatting stack"
        ),
    ]
    if python == sys.executable:  # splatfix's own environment is seldom the one that is meant
        todo.reverse()
    problem = f"This environment lacks {', '.join(missing)}."
    return Rejected.of("certify.prerequisites-missing", problem=problem, todo=tuple(todo))


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
    if make_context(facts).visible_gpus and not _torch_lacks(facts):
        return "cuda"
    return "cpu"


def idle_gpu(facts: Facts, device: str) -> str:
    """One sentence on a GPU that is present and was not used; "" otherwise."""
    gpus = make_context(facts).visible_gpus
    if device != "cpu" or not gpus:
        return ""
    return f"The {gpus[0].name} was not used: {_torch_lacks(facts) or 'the device is cpu'}."


def _torch_lacks(facts: Facts) -> str:
    """Why torch cannot use an NVIDIA GPU; "" where it can."""
    torch = facts.environment.torch.value
    if torch is None:
        return "torch could not be read"
    if torch.cuda:
        return ""
    return f"torch {torch.version} is a {torch.built_for} build"
