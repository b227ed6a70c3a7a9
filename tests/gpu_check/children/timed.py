"""Times one kernel at one size on the GPU, synchronised, with its peak of memory: timed WHAT SIZE, as JSON.

WHAT is `ssim:MODULE`, `knn:MODULE` or `rasterizer:RENDERER`, or `nvrtc` behind the colon: our own CUDA kernels. SIZE is the width
of a 16:9 image, or the number of points (for rasterizers WIDTHxPOINTS). The first call is not counted: it loads code and fills
the allocator.
"""

import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable

import torch
from gpu_check.children.draw import ORDER, camera_of
from kernels.scenes import cloud, look_at

from smoke_trainer.model import Splats
from smoke_trainer.renderers import make_renderer

DEVICE = torch.device("cuda")
REPEAT = 3


def ssim(module: str, size: str) -> Callable[[], torch.Tensor]:
    """Forward and backward of one image pair."""
    width = int(size)
    function = importlib.import_module(module).fused_ssim
    generator = torch.Generator().manual_seed(0)
    shape = (1, 3, width * 9 // 16, width)
    first = torch.rand(shape, generator=generator).to(DEVICE).requires_grad_()
    second = torch.rand(shape, generator=generator).to(DEVICE)

    def work() -> torch.Tensor:
        (gradient,) = torch.autograd.grad(function(first, second), first)
        return gradient

    return work


def knn(module: str, size: str) -> Callable[[], torch.Tensor]:
    """The mean squared distances to three neighbours."""
    function = importlib.import_module(module).distCUDA2
    points = torch.randn(int(size), 3, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    return lambda: function(points)


def rasterizer(name: str, size: str) -> Callable[[], torch.Tensor]:
    """Forward and backward of one view of a cube of small Gaussians."""
    width, count = map(int, size.split("x"))
    renderer = make_renderer(name, DEVICE)
    camera = camera_of(look_at(width, width * 9 // 16), DEVICE)
    side = 2.0 / count ** (1 / 3)  # so that neighbours just touch
    inputs = cloud(count, size=(0.2 * side, side))
    leaves = [inputs[key].float().to(DEVICE).requires_grad_() for key in ORDER]
    background = torch.zeros(3).to(DEVICE)

    def work() -> torch.Tensor:
        output = renderer.render(camera, Splats(*leaves, sh_degree=3), background)
        return torch.autograd.grad(output.color.sum(), leaves)[0]

    return work


def main() -> None:
    kind, _, name = sys.argv[1].partition(":")
    if name == "nvrtc":
        os.environ["SPLATFIX_KERNELS"] = "nvrtc"
        name = "torch" if kind == "rasterizer" else f"splatfix.kernels.{kind}"
    work = {"ssim": ssim, "knn": knn, "rasterizer": rasterizer}[kind](name, sys.argv[2])
    seconds = []
    for turn in range(REPEAT + 1):
        torch.cuda.synchronize()
        if turn == 1:
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        result = work()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    total = float(result.double().abs().sum())
    answer = {
        "first_s": round(seconds[0], 6),
        "best_s": round(min(seconds[1:]), 6),
        "peak_mib": torch.cuda.max_memory_allocated() >> 20,
        "finite": math.isfinite(total) and total > 0,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
