"""The plan: most proof first; while extensions are compiled, what needs none of them has the GPU.

Limits are for hanging, not for measuring: twice what is expected of 16 cores and an H200; those of builds are in
``steps/install``. A limit is shared by the programs that the step runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from .needs import BUILD
from .steps import facts, install, kernels, sabotage, scene, train, visible
from .visit import Step

VARIANTS = ("inria-2024", "mip-splatting", "taming-3dgs")
STACK = ("install-stack",)
TRAINING = ("pillow",)


def _install(name: str, title: str) -> Step:
    run = partial(install.built, name=name)
    return Step(f"install-{name}", f"{title}: install", install.JOBS[name].limit, run, wants=BUILD)


def _scene(name: str, title: str, renderer: str, environment: str, needs: tuple[str, ...]) -> Step:
    run = partial(scene.run, renderer=renderer, environment=environment)
    return Step(f"scene-{name}", f"frozen scene: {title}", 60, run, needs)


def _train(
    renderer: str, title: str, environment: str, limit: float = 120, needs: tuple[str, ...] = ()
) -> Step:
    run = partial(train.suite_with, renderer=renderer, environment=environment)
    return Step(f"train-{renderer}", f"quick suite: {title}", limit, run, needs, TRAINING)


_STEPS = (
    Step("facts", "facts beside nvidia-smi and torch", 90, facts.run),
    _scene("torch", "PyTorch", "torch", "plain", ()),
    Step("visible", "CUDA_VISIBLE_DEVICES", 120, visible.run),
    _train("torch", "PyTorch", "plain", 180),
    _install("stack", "Inria v1, simple-knn, fused-ssim"),
    Step("verify", "our kernels and the installed ones against float64", 240, kernels.verify),
    _scene("inria", "Inria v1", "inria", "stack", STACK),
    Step("golden", "golden arrays of Inria v1", 60, kernels.golden, STACK),
    Step(
        "tests", "PyTorch kernels on the GPU: tests marked gpu", 120, partial(kernels.tests, names="pytorch")
    ),
    _train("inria", "Inria v1", "stack", needs=STACK),
    Step("seed", "one seed three times: Inria v1", 120, train.again, ("train-inria",), TRAINING),
    *(_install(variant, variant) for variant in VARIANTS),
    *(_scene(name, name, "inria", name, (f"install-{name}",)) for name in VARIANTS),
    Step("sabotage", "broken extensions are found out and taken back", 240, sabotage.run, wants=BUILD),
    _install("gsplat", "gsplat"),
    _scene("gsplat", "gsplat", "gsplat", "gsplat", ("install-gsplat",)),
    _train("gsplat", "gsplat", "gsplat", needs=("install-gsplat",)),
    Step("monitor", "monitor beside a known allocation", 60, kernels.monitor),
    Step("sizes", "sizes of real trainings", 180, kernels.sizes),
    Step("compiled", "our own CUDA kernels by NVRTC", 120, partial(kernels.tests, names="compiled")),
    Step("take-back", "every installation is taken back", 45, install.take_back, kept=True),
)
PLAN = tuple(replace(step, number=number) for number, step in enumerate(_STEPS, 1))


def chosen(names: Sequence[str] | None) -> list[Step]:
    """The steps to run: all, or the named ones and what they need.

    Raises:
        KeyError: the names that no step has.
    """
    known = {step.name: step for step in PLAN}
    pending = list(known if names is None else names)
    unknown = [name for name in pending if name not in known]
    if unknown:
        raise KeyError(*unknown)
    for name in pending:  # which grows
        pending += known[name].needs
    return [step for step in PLAN if step.name in pending]
