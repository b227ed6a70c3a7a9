"""Times one kernel at one size on the GPU, synchronised, with its peak of memory: timed.py WHAT SIZE, as JSON.

WHAT is `ssim:MODULE`, `knn:MODULE` or `rasterizer:RENDERER`; SIZE the width of a 16:9 image, or the number of points (for
rasterizers WIDTHxPOINTS). The first call is not counted: it loads code and fills the allocator.
"""

import importlib
import json
import math
import sys
import time
from collections.abc import Callable

import torch

from smoke_trainer.model import Splats
from smoke_trainer.renderers import RenderCamera, make_renderer

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
    """Forward and backward of one view of a ball of small Gaussians."""
    width, count = map(int, size.split("x"))
    height = width * 9 // 16
    renderer = make_renderer(name, DEVICE)
    generator = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    side = 2.0 / count ** (1 / 3)  # so that neighbours just touch
    parts = (
        torch.randn(count, 3, generator=generator),
        side * (0.2 + 0.8 * rand(count, 3)),
        torch.nn.functional.normalize(torch.randn(count, 4, generator=generator)),
        0.1 + 0.8 * rand(count, 1),
        rand(count, 16, 3) - 0.5,
    )
    leaves = [part.to(DEVICE).requires_grad_() for part in parts]
    focal = 1.2 * width
    view, clip = torch.eye(4), torch.zeros(4, 4)
    view[2, 3] = 5.0
    clip[0, 0], clip[1, 1], clip[2, 2], clip[2, 3], clip[3, 2] = (
        2 * focal / width,
        2 * focal / height,
        1.0,
        -0.01,
        1.0,
    )
    matrix = torch.tensor([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1.0]])
    tensors = [
        part.to(DEVICE).contiguous()
        for part in (view.T, (clip @ view).T, matrix, torch.tensor([0.0, 0.0, -5.0]))
    ]
    camera = RenderCamera(width, height, width / (2 * focal), height / (2 * focal), *tensors)
    background = torch.zeros(3).to(DEVICE)

    def work() -> torch.Tensor:
        output = renderer.render(camera, Splats(*leaves, sh_degree=3), background)
        return torch.autograd.grad(output.color.sum(), leaves)[0]

    return work


def main() -> None:
    kind, _, name = sys.argv[1].partition(":")
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
    said = {
        "first_s": round(seconds[0], 6),
        "best_s": round(min(seconds[1:]), 6),
        "peak_mib": torch.cuda.max_memory_allocated() >> 20,
        "finite": math.isfinite(total) and total > 0,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
