"""Times kernels on the GPU and holds them against each other: timed KERNEL:ENGINE:SIZE..., a line of JSON as each is done.

KERNEL is one of BUILDERS. ENGINE is `torch` (ours in PyTorch), `nvrtc` (our CUDA kernels), `warp` (gswarp's), or a module or
renderer that an extension brings. SIZE is the width of a 16:9 image, or a number of points, or WIDTHxCOUNT. What the first
engine of a kernel computed is what the later ones are held against. The first call is timed apart: it loads code and fills the
allocator.
"""

import importlib
import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpu_check.children.draw import ORDER, camera_of
from kernels.compare import ARGUMENTS, SURFELS, gaussians_of, in_precision
from kernels.cuda import emulator
from kernels.scenes import cloud, discs, look_at

from smoke_trainer.model import Splats
from smoke_trainer.renderers import make_renderer
from splatfix.kernels import contributions_cuda, knn_cuda, on_warp, rasterizer_cuda, ssim_cuda, surfels_cuda
from splatfix.kernels.contributions import contributions
from splatfix.kernels.knn import distCUDA2
from splatfix.kernels.rasterizer import rasterize
from splatfix.kernels.ssim import fused_ssim
from splatfix.kernels.surfels import rasterize_surfels

DEVICE = torch.device("cuda")
REPEAT = 3
LONG = 5.0
"""Seconds; what took so long is not called again."""
Results = dict[str, torch.Tensor]
Work = Callable[[], Results]


def ssim(engine: str, size: str) -> Work:
    """Forward and backward of one image pair."""
    width = int(size)
    generator = torch.Generator().manual_seed(0)
    shape = (1, 3, width * 9 // 16, width)
    first = torch.rand(shape, generator=generator).to(DEVICE).requires_grad_()
    second = torch.rand(shape, generator=generator).to(DEVICE)
    ours = {"nvrtc": ssim_cuda.mean_ssim, "warp": on_warp.mean_ssim}

    def work() -> Results:
        if engine in ours:
            mean = ours[engine](first, second, "same")
        elif engine == "torch":
            mean = fused_ssim(first, second)
        else:
            mean = importlib.import_module(engine).fused_ssim(first, second)
        return {"mean": mean, "gradient": torch.autograd.grad(mean, first)[0]}

    return work


def knn(engine: str, size: str) -> Work:
    """The mean squared distances to three neighbours."""
    points = torch.randn(int(size), 3, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    if engine == "torch":
        return lambda: {"distances": distCUDA2(points, engine="torch")}
    ours = {"nvrtc": knn_cuda.mean_of_three, "warp": on_warp.mean_of_three}
    search = ours[engine] if engine in ours else importlib.import_module(engine).distCUDA2
    return lambda: {"distances": search(points)}


def _scene(size: str, make: Callable[..., Results]) -> tuple[Any, Results]:
    """A view of a cube of small Gaussians, whose neighbours just touch."""
    width, count = map(int, size.split("x"))
    side = 2.0 / count ** (1 / 3)
    inputs = make(count, size=(0.2 * side, side))
    leaves = {name: tensor.float().to(DEVICE).requires_grad_() for name, tensor in inputs.items()}
    return in_precision(look_at(width, width * 9 // 16), torch.float32, str(DEVICE)), leaves


def rasterizer(engine: str, size: str) -> Work:
    """Forward and backward of one view."""
    settings, leaves = _scene(size, cloud)
    ours = {"torch": rasterize, "nvrtc": rasterizer_cuda.rasterize, "warp": on_warp.rasterize}
    if engine in ours:
        return _drawn(ours[engine], settings, leaves, ARGUMENTS)
    renderer = make_renderer(engine, DEVICE)
    camera, background = camera_of(settings, DEVICE), torch.zeros(3).to(DEVICE)

    def work() -> Results:
        splats = Splats(*(leaves[name] for name in ORDER), sh_degree=3)
        color = renderer.render(camera, splats, background).color
        return {"color": color, **_gradients(color, leaves)}

    return work


def surfels(engine: str, size: str) -> Work:
    """Forward and backward of one view of discs."""
    settings, leaves = _scene(size, discs)
    draw = {"torch": rasterize_surfels, "nvrtc": surfels_cuda.rasterize}[engine]
    return _drawn(draw, settings, leaves, SURFELS)


def _drawn(
    draw: Callable[..., Any], settings: Any, leaves: Results, names: tuple[str, ...]
) -> Callable[[], Results]:
    screen = torch.zeros(len(leaves["means3D"]), 3).to(DEVICE).requires_grad_()
    arguments = [screen if name == "means2D" else leaves.get(name) for name in names]

    def work() -> Results:
        color, radii = draw(settings, *arguments)[:2]
        return {"color": color, "radii": radii, **_gradients(color, {**leaves, "means2D": screen})}

    return work


def _gradients(color: torch.Tensor, leaves: Results) -> Results:
    """Those of a random weighting of the image, by name."""
    weights = torch.randn(color.shape, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    gradients = torch.autograd.grad((color * weights).sum(), list(leaves.values()))
    return {f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}


def sums(engine: str, size: str) -> Work:
    """What each Gaussian contributes to the pixels of one view."""
    settings, leaves = _scene(size, cloud)
    inputs = {name: tensor.detach() for name, tensor in leaves.items() if name != "shs"}
    if engine == "torch":
        return lambda: contributions(settings, **inputs)._asdict()
    given = gaussians_of(inputs, torch.float32, str(DEVICE), colors=1)
    names = contributions(
        look_at(8, 8), **{name: tensor[:1].cpu() for name, tensor in inputs.items()}
    )._fields
    return lambda: dict(zip(names, contributions_cuda.sums(settings, given, None), strict=True))


BUILDERS = {"ssim": ssim, "knn": knn, "rasterizer": rasterizer, "surfels": surfels, "contributions": sums}


def timed(work: Work) -> tuple[Results, dict[str, Any]]:
    """What was computed, and seconds of the first and of the fastest later call, synchronised, with the peak of memory."""
    seconds: list[float] = []
    while len(seconds) <= REPEAT and (len(seconds) < 2 or sum(seconds) < LONG):
        if len(seconds) == 1:
            torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        started = time.perf_counter()
        results = work()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    totals = [float(result.detach().double().abs().sum()) for result in results.values()]
    return results, {
        "first_s": round(seconds[0], 6),
        "best_s": round(min(seconds[1:]), 6),
        "peak_mib": torch.cuda.max_memory_allocated() >> 20,
        "finite": all(map(math.isfinite, totals)) and any(totals),
    }


def difference(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Sum of the absolute differences by the sum of what was expected; a part that is wrong for some rows only is seen in it."""
    exact = expected.detach().double()
    return float((result.detach().double() - exact).abs().sum() / exact.abs().sum().clamp_min(1e-30))


def main() -> None:
    if not torch.zeros(1, device=DEVICE).is_cuda:  # a rehearsal
        emulator.use_kernels(emulator.emulated_module, pytest.MonkeyPatch())
    first: dict[str, Results] = {}
    for job in sys.argv[1:]:
        kernel, engine, size = job.split(":")
        answer: dict[str, Any] = {"kernel": kernel, "engine": engine, "size": size}
        try:
            results, measured = timed(BUILDERS[kernel](engine, size))
        except (RuntimeError, ImportError) as error:  # the next engine is tried
            answer["error"] = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
        else:
            expected = first.setdefault(kernel, {name: value.detach() for name, value in results.items()})
            compared = results.keys() & expected.keys()
            differences = {name: difference(results[name], expected[name]) for name in sorted(compared)}
            answer |= {**measured, "differences": differences}
        results = {}
        torch.cuda.empty_cache()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
