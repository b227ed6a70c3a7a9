"""The plan: most proof first; while extensions are compiled, what needs none of them has the GPU.

Limits are for hanging, not for measuring: twice what is expected of 16 cores and an H200; those of builds are in
``steps/install``. A limit is shared by the programs that the step runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .context import DEVICE, Context, error_of
from .needs import BUILD
from .notes import Failed, Notes
from .steps import facts, golden, install, sabotage, scene, train, visible
from .visit import Visit

VARIANTS = ("inria-2024", "mip-splatting", "taming-3dgs")
TRAINING = ("pillow",)
BROUGHT = {"inria-v1": "rasterizer", "simple-knn": "knn", "fused-ssim": "ssim"}
"""Source -> the kernel that it brings."""
HELD_MIB = 4096
CONTEXT_MIB = 1536
"""At most for the CUDA context and torch's own reserve beside the allocation."""
# Environment, kernel, module or renderer, source of a native one.
TIMED = (
    ("stack", "ssim", "splatfix.kernels.ssim", ""),
    ("stack", "ssim", "fused_ssim", "fused-ssim"),
    ("stack", "knn", "splatfix.kernels.knn", ""),
    ("stack", "knn", "simple_knn._C", "simple-knn"),
    ("stack", "rasterizer", "inria", "inria-v1"),
    ("gsplat", "rasterizer", "gsplat", "gsplat"),
    ("stack", "rasterizer", "torch", ""),
)
COMPILED_ERRORS = {"knn": 1e-6, "ssim": 1e-5, "surfels": 1e-3}
"""Largest error relative to float64; of rasterizers, images and gradients alike, 1e-4."""


def step(name: str, title: str, limit: float, **more: Any) -> Callable[[Any], Any]:
    """A test that needs a GPU, by its name in the record."""

    def marked(function: Any) -> Any:
        return pytest.mark.gpu(pytest.mark.step(name, title, limit, **more)(function))

    return marked


@step("facts", "facts beside nvidia-smi and torch", 90)
def test_facts(context: Context, notes: Notes) -> None:
    facts.run(context, notes)


@step("scene-torch", "frozen scene: PyTorch", 60)
def test_scene_torch(context: Context, notes: Notes) -> None:
    scene.run(context, notes, "torch", "plain")


@step("visible", "CUDA_VISIBLE_DEVICES", 120)
def test_visible(context: Context, notes: Notes) -> None:
    visible.run(context, notes)


@step("train-torch", "quick suite: PyTorch", 180, wants=TRAINING)
def test_train_torch(context: Context, notes: Notes) -> None:
    train.suite_with(context, notes, "torch", "plain")


@step("install-stack", "Inria v1, simple-knn, fused-ssim: install", install.JOBS["stack"].limit, wants=BUILD)
def test_install_stack(visit: Visit, notes: Notes) -> None:
    notes.add(visit.built("stack"))


@step("verify", "our kernels and the installed ones against float64", 240)
def test_verify(context: Context, notes: Notes) -> None:
    """All kernels of the environment with the stack: ours, and every one that its sources should have brought."""
    argv = ("verify", "--device", DEVICE, "--python", context.python("stack"))
    _, document = context.splatfix(*argv, timeout=230)
    if "kernels" not in document:
        notes.expect(False, "the kernels are verified", error_of(document))
        return
    checks: list[dict[str, Any]] = document["kernels"]
    notes.numbers["kernels"] = checks
    expected = {("ours", name) for name in ("ssim", "knn", "rasterizer")}
    expected |= {("native", BROUGHT[name]) for name in context.sources if name in BROUGHT}
    for kind, name in sorted(expected):
        matching = [check for check in checks if (check["kind"], check["name"]) == (kind, name)]
        if not matching:
            notes.expect(False, f"{name} ({kind}) is verified on the GPU", "it was not run")
        for check in matching:
            value, gradient = check["value_error"], check["gradient_error"]
            errors = []
            if value is not None:
                errors.append(f"value error {value:.1e} of {check['value_allowed']:.0e}")
            if gradient is not None:
                errors.append(f"gradient error {gradient:.1e} of {check['gradient_allowed']:.0e}")
            shown = "; ".join(filter(None, [", ".join(errors), check["detail"]])) or check["outcome"]
            subject = f"{check['implementation']} agrees with its float64 reference on the GPU"
            notes.expect(check["outcome"] == "met", subject, shown)


@step("scene-inria", "frozen scene: Inria v1", 60, needs=["install-stack"])
def test_scene_inria(context: Context, notes: Notes) -> None:
    scene.run(context, notes, "inria", "stack")


@step("golden", "golden arrays of Inria v1", 60, needs=["install-stack"])
def test_golden(context: Context, notes: Notes) -> None:
    golden.arrays(context, notes)


@step("tests", "tests marked gpu", 120, needs=["install-stack"])
def test_tests(context: Context, notes: Notes) -> None:
    golden.tests(context, notes)


@step("train-inria", "quick suite: Inria v1", 120, needs=["install-stack"], wants=TRAINING)
def test_train_inria(context: Context, notes: Notes) -> None:
    train.suite_with(context, notes, "inria", "stack")


@step("seed", "one seed three times: Inria v1", 120, needs=["train-inria"], wants=TRAINING)
def test_seed(context: Context, notes: Notes) -> None:
    train.again(context, notes, "inria", "stack")


@step("install-{variant}", "{variant}: install", install.JOBS[VARIANTS[0]].limit, wants=BUILD)
@pytest.mark.parametrize("variant", VARIANTS)
def test_install_variant(visit: Visit, notes: Notes, variant: str) -> None:
    notes.add(visit.built(variant))


@step("scene-{variant}", "frozen scene: {variant}", 60, needs=["install-{variant}"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_scene_variant(context: Context, notes: Notes, variant: str) -> None:
    scene.run(context, notes, "inria", variant)


@step("sabotage", "broken extensions are found out and taken back", 240, wants=BUILD)
def test_sabotage(context: Context, notes: Notes) -> None:
    sabotage.run(context, notes)


@step("install-gsplat", "gsplat: install", install.JOBS["gsplat"].limit, wants=BUILD)
def test_install_gsplat(visit: Visit, notes: Notes) -> None:
    notes.add(visit.built("gsplat"))


@step("scene-gsplat", "frozen scene: gsplat", 60, needs=["install-gsplat"])
def test_scene_gsplat(context: Context, notes: Notes) -> None:
    scene.run(context, notes, "gsplat", "gsplat")


@step("train-gsplat", "quick suite: gsplat", 120, needs=["install-gsplat"], wants=TRAINING)
def test_train_gsplat(context: Context, notes: Notes) -> None:
    train.suite_with(context, notes, "gsplat", "gsplat")


@step("monitor", "monitor beside a known allocation", 60)
def test_monitor(context: Context, notes: Notes) -> None:
    """Watch a program that holds so much; the driver may hide its process in a container, which the notes then say."""
    held = context.size(HELD_MIB, 256)
    argv = context.child_argv("plain", "allocate", str(held), "3")
    out = context.folder("monitor") / "series"
    code, summary = context.splatfix("monitor", "--interval", "0.1", "--out", out, command=argv, timeout=60)
    notes.numbers["summary"] = summary
    notes.expect(code == 0, "the watched command's exit code is passed on", f"{code}")
    # a rehearsal allocates in host memory
    peak = summary.get("rss_peak_gb" if context.rehearsal else "vram_peak_gb")
    measured = "nothing" if peak is None else f"{peak * 1024:.0f} MiB"
    notes.expect(
        peak is not None and held <= peak * 1024 <= held + CONTEXT_MIB,
        "the peak is the allocation and a CUDA context",
        f"{held} MiB held, {measured} measured; {summary.get('notes')}",
    )


@step("sizes", "sizes of real trainings", 180)
def test_sizes(context: Context, notes: Notes) -> None:
    """1080p with a million Gaussians, ten million points, SSIM at 1080p; each in a process of its own, for its own memory."""
    width, points, count = context.size(1920, 64), context.size(10_000_000, 500), context.size(1_000_000, 300)
    sizes = {
        "ssim": (f"{width}", f"{width} pixels wide"),
        "knn": (f"{points}", f"{points:,} points"),
        "rasterizer": (f"{width}x{count}", f"{count:,} Gaussians, {width} pixels wide"),
    }
    for environment, kernel, name, source in TIMED:
        if source and source not in context.sources:
            notes.numbers[name] = f"not timed: GPU_SOURCES holds no {source}"
            continue
        size, label = sizes[kernel]
        try:
            timed = context.answer(environment, "timed", f"{kernel}:{name}", size, timeout=45)
        except Failed as error:
            notes.problems.append(str(error))
            continue
        notes.numbers[f"{kernel}:{name}"] = {"size": label, **timed}
        shown = f"{timed['best_s'] * 1000:.2f} ms, peak {timed['peak_mib']} MiB"
        notes.expect(timed["finite"], f"{kernel} by {name}, {label}", shown)


@step("compiled", "our own CUDA kernels by NVRTC", 120)
def test_compiled(context: Context, notes: Notes) -> None:
    """Compiled, loaded and run beside the PyTorch kernels in float64; emulated on the CPU in a rehearsal."""
    answer = context.answer("plain", "compiled", "emulated" if context.rehearsal else "cuda", timeout=90)
    notes.numbers.update(answer)
    for kernel, error in answer.items():
        if kernel.split()[0] in ("rasterizer", "surfels", "contributions", "ssim", "knn"):
            allowed = COMPILED_ERRORS.get(kernel, 1e-4)
            shown = f"error {error:.1e} of at most {allowed:.0e}"
            notes.expect(error <= allowed, f"our CUDA {kernel} equals float64", shown)


@step("take-back", "every installation is taken back", 45, kept=True)
def test_take_back(context: Context, notes: Notes) -> None:
    install.take_back(context, notes)
