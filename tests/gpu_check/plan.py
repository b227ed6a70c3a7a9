"""The plan: what needs no build and proves most comes first, within two minutes; then what is not timed, beside the builds; then
the rest of what is timed, once they have ended.

Limits are for hanging, not for measuring: twice what is expected of 16 cores and an H200; those of builds are in
``steps/install``. A limit is shared by the programs that the step runs.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from .context import ROOT
from .needs import BUILD
from .steps import facts, install, kernels, sabotage, scene, train, visible
from .visit import Step

VARIANTS = ("inria-2024", "mip-splatting", "taming-3dgs")
STACK = ("install-stack",)
TRAINING = ("pillow",)
OF_COMPILED = ["kernels/test_on_gpu.py", "kernels/test_waits_on_gpu.py"]
OF_OTHERS = ["kernels/test_on_gpu.py", "smoke_trainer/test_device.py"]
if (ROOT / "tests" / "records" / kernels.GOLDEN).exists():  # which the step "golden" makes
    OF_OTHERS.append("kernels/test_rasterizer_golden.py")


def _install(name: str, title: str, *more: str) -> Step:
    run = partial(install.built, name=name)
    return Step(f"install-{name}", f"{title}: install", install.JOBS[name].limit, run, wants=(*BUILD, *more))


def _scene(name: str, title: str, renderer: str, environment: str, needs: tuple[str, ...]) -> Step:
    run = partial(scene.run, renderer=renderer, environment=environment)
    return Step(f"scene-{name}", f"frozen scene: {title}", 60, run, needs)


def _train(
    name: str, renderer: str, title: str, environment: str, limit: float = 120, needs: tuple[str, ...] = ()
) -> Step:
    run = partial(train.suite_with, renderer=renderer, environment=environment)
    return Step(f"train-{name}", f"quick suite: {title}", limit, run, needs, TRAINING, alone=True)


_FIRST = (
    Step("facts", "facts beside nvidia-smi and torch", 60, facts.run, alone=True),
    Step("compile", "NVRTC compiles our CUDA kernels", 60, kernels.compiled, alone=True),
    Step(
        "kernels",
        "our CUDA kernels against float64: tests marked gpu",
        60,
        partial(kernels.tests, expression="compiled", files=OF_COMPILED),
        alone=True,
    ),
    Step("large", "our kernels with a million Gaussians at 1080p", 120, kernels.large, alone=True),
    Step("install-dropins", "drop-ins: install", 60, install.dropins, alone=True),
    _train("dropins", "inria", "drop-ins", "dropins", 90, ("install-dropins",)),
    Step("sanitizer", "our CUDA kernels under compute-sanitizer", 120, kernels.sanitizer, alone=True),
)
"""What needs no build: two minutes."""
_BESIDE_BUILDS = (
    _scene("torch", "PyTorch", "torch", "plain", ()),
    Step("visible", "CUDA_VISIBLE_DEVICES", 120, visible.run),
    Step(
        "tests",
        "kernels in PyTorch and the trainer on the GPU: tests marked gpu",
        120,
        partial(kernels.tests, expression="not compiled", files=OF_OTHERS),
    ),
    _install("stack", "Inria v1, simple-knn, fused-ssim"),
    Step("verify", "our kernels and the installed ones against float64", 240, kernels.verify),
    _scene("inria", "Inria v1", "inria", "stack", STACK),
    Step("golden", "golden arrays of Inria v1", 60, kernels.golden, STACK),
    *(_install(variant, variant) for variant in VARIANTS),
    *(_scene(name, name, "inria", name, (f"install-{name}",)) for name in VARIANTS),
    Step("sabotage", "broken extensions are found out and taken back", 240, sabotage.run, wants=BUILD),
    Step("monitor", "monitor beside a known allocation", 60, kernels.monitor),
    _install("gsplat", "gsplat", "jaxtyping"),
    _scene("gsplat", "gsplat", "gsplat", "gsplat", ("install-gsplat",)),
)
_LAST = (
    _train("inria", "inria", "Inria v1", "stack", needs=STACK),
    _train("torch", "torch", "PyTorch", "plain", 180),
    Step("seed", "one seed three times: Inria v1", 120, train.again, ("train-inria",), TRAINING, alone=True),
    _train("gsplat", "gsplat", "gsplat", "gsplat", needs=("install-gsplat",)),
    Step("sizes", "the extensions with a million Gaussians at 1080p", 120, kernels.installed, alone=True),
    Step("take-back", "every installation is taken back", 45, install.take_back, kept=True),
)
_STEPS = (*_FIRST, *_BESIDE_BUILDS, *_LAST)
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
