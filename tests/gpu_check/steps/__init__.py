"""The plan: most proof first; what only compiles runs beside the rest."""

from __future__ import annotations

from ..plan import Step
from . import compiled, facts, golden, install, monitor, sabotage, scene, sizes, train, verify, visible

VARIANTS = ("inria-2024", "mip-splatting", "taming-3dgs")

# Limits are for hanging, not for measuring: twice what is expected of 16 cores and an H200.
_STEPS: tuple[Step, ...] = (
    Step("facts", "facts beside nvidia-smi and torch", 90, facts.run),
    Step("install-stack", "Inria v1, simple-knn, fused-ssim: install", 240, install.of("stack", 230)),
    *(
        Step(
            f"install-{name}",
            f"{name}: install",
            360,
            install.of(name, 350),
            after=("install-stack",),
            beside=True,
        )
        for name in (*VARIANTS, "gsplat")
    ),
    Step(
        "verify",
        "our kernels and the installed ones against float64",
        180,
        verify.run,
        after=("install-stack",),
    ),
    Step("scene-torch", "frozen scene: PyTorch", 60, scene.of("torch", "stack")),
    Step("scene-inria", "frozen scene: Inria v1", 60, scene.of("inria", "stack"), ("install-stack",)),
    Step("golden", "golden arrays of Inria v1", 60, golden.arrays, ("install-stack",)),
    Step("tests", "tests marked gpu", 120, golden.tests, ("install-stack",)),
    Step("train-inria", "quick suite: Inria v1", 120, train.of("inria", "stack"), ("install-stack",)),
    Step("seed", "one seed twice: Inria v1", 120, train.again("inria", "stack"), ("train-inria",)),
    Step("train-torch", "quick suite: PyTorch", 150, train.of("torch", "stack")),
    Step(
        "sabotage",
        "broken extensions are found out and taken back",
        180,
        sabotage.run,
        after=("install-stack",),
    ),
    Step("visible", "CUDA_VISIBLE_DEVICES", 120, visible.run),
    Step("monitor", "monitor beside a known allocation", 60, monitor.run),
    *(
        Step(f"scene-{name}", f"frozen scene: {name}", 60, scene.of("inria", name), (f"install-{name}",))
        for name in VARIANTS
    ),
    Step("scene-gsplat", "frozen scene: gsplat", 60, scene.of("gsplat", "gsplat"), ("install-gsplat",)),
    Step("train-gsplat", "quick suite: gsplat", 120, train.of("gsplat", "gsplat"), ("install-gsplat",)),
    Step("sizes", "sizes of real trainings", 180, sizes.run, after=("install-stack", "install-gsplat")),
    Step("compiled", "our own CUDA kernels", 60, compiled.run),
)
STEPS = (
    *_STEPS,
    Step(
        "take-back",
        "every installation is taken back",
        120,
        install.take_back,
        after=tuple(step.name for step in _STEPS),
    ),
)
