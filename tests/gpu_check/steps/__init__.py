"""The plan: most proof first; while extensions are compiled, what needs none of them has the GPU."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from ..needs import BUILD
from ..plan import Notes, Step

VARIANTS = ("inria-2024", "mip-splatting", "taming-3dgs")
_STACK = ("install-stack",)


def _step(name: str, title: str, limit: float, run: str, *words: str, **more: Any) -> Step:
    """A step whose function is ``run`` (module.function); its module is imported when it runs, so that a list needs no torch."""
    module, _, function = run.partition(".")

    def call(context: Any, notes: Notes) -> None:
        getattr(import_module(f".{module}", __name__), function)(context, notes, *words)

    return Step(name, title, limit, call, **more)


def _install(name: str, title: str, limit: float, *words: str, **more: Any) -> Step:
    run = "install.environment"
    return _step(f"install-{name}", title, limit, run, name, *words, beside=True, wants=BUILD, **more)


# Limits are for hanging, not for measuring: twice what is expected of 16 cores and an H200. Those of installations hold a
# build and a kernel that hangs until verify gives it up (180 s), so that it is taken back within them. Expected, from builds
# on two cores (tests/records/native_builds.json): 4 files of an Inria rasterizer 2 to 4 minutes of one core, gsplat's 25 files
# 25 minutes; so on 16 cores the stack in 2 minutes beside gsplat, gsplat on half of the cores in 3 to 4.
_STEPS: tuple[Step, ...] = (
    _install("stack", "Inria v1, simple-knn, fused-ssim: install", 400),
    _install("gsplat", "gsplat: install", 430, "--jobs", str(max(1, (os.cpu_count() or 1) // 2))),
    _step("facts", "facts beside nvidia-smi and torch", 90, "facts.run"),
    _step("scene-torch", "frozen scene: PyTorch", 60, "scene.run", "torch", "plain"),
    _step("visible", "CUDA_VISIBLE_DEVICES", 120, "visible.run", beside=True),
    _step(
        "train-torch",
        "quick suite: PyTorch",
        180,
        "train.suite_with",
        "torch",
        "plain",
        wants=("pillow",),
    ),
    *(_install(name, f"{name}: install", 360, after=_STACK) for name in VARIANTS),
    _step("verify", "our kernels and the installed ones against float64", 240, "verify.run", after=_STACK),
    _step("scene-inria", "frozen scene: Inria v1", 60, "scene.run", "inria", "stack", needs=_STACK),
    _step("golden", "golden arrays of Inria v1", 60, "golden.arrays", needs=_STACK),
    _step("tests", "tests marked gpu", 120, "golden.tests", needs=_STACK),
    _step(
        "train-inria",
        "quick suite: Inria v1",
        120,
        "train.suite_with",
        "inria",
        "stack",
        needs=_STACK,
        wants=("pillow",),
    ),
    _step(
        "seed",
        "one seed three times: Inria v1",
        120,
        "train.again",
        "inria",
        "stack",
        needs=("train-inria",),
        wants=("pillow",),
    ),
    *(
        _step(
            f"scene-{name}",
            f"frozen scene: {name}",
            60,
            "scene.run",
            "inria",
            name,
            needs=(f"install-{name}",),
        )
        for name in VARIANTS
    ),
    _step(
        "sabotage",
        "broken extensions are found out and taken back",
        240,
        "sabotage.run",
        after=_STACK,
        wants=BUILD,
    ),
    _step(
        "scene-gsplat", "frozen scene: gsplat", 60, "scene.run", "gsplat", "gsplat", needs=("install-gsplat",)
    ),
    _step(
        "train-gsplat",
        "quick suite: gsplat",
        120,
        "train.suite_with",
        "gsplat",
        "gsplat",
        needs=("install-gsplat",),
        wants=("pillow",),
    ),
    _step("monitor", "monitor beside a known allocation", 60, "monitor.run"),
    _step(
        "sizes",
        "sizes of real trainings",
        180,
        "sizes.run",
        after=(*_STACK, *(f"install-{name}" for name in (*VARIANTS, "gsplat"))),
    ),
    _step("compiled", "our own CUDA kernels by NVRTC", 120, "compiled.run"),
)
STEPS = (
    *_STEPS,
    _step(
        "take-back",
        "every installation is taken back",
        45,
        "install.take_back",
        after=tuple(step.name for step in _STEPS),
        kept=True,
    ),
)
