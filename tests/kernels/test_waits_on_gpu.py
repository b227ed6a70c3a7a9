"""On a GPU: how often a frame of our CUDA kernels makes the host wait, as torch itself counts it."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.kernels import rasterizer_cuda, ssim_cuda, surfels_cuda

from .compare import ARGUMENTS, SURFELS, in_precision
from .scenes import cloud, discs, look_at, rand

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU and a CUDA build of torch"),
]


def gaussians() -> Tensor:
    inputs = {**cloud(400), "means2D": torch.zeros(400, 3)}
    return drawn(rasterizer_cuda.rasterize, inputs, ARGUMENTS)


def gaussians_used() -> Tensor:
    """As 3DGS-MCMC has them."""
    inputs = {**cloud(400), "means2D": torch.zeros(400, 3)}
    used = torch.zeros(400, dtype=torch.int32, device="cuda")
    return drawn(partial(rasterizer_cuda.rasterize, used=used), inputs, ARGUMENTS)


def gaussians_moved() -> Tensor:
    """As Mip-Splatting has them."""
    inputs = {**cloud(400), "means2D": torch.zeros(400, 3)}
    options = {"kernel_size": 0.1, "subpixel_offset": rand(70, 90, 2) - 0.5}
    return drawn(rasterizer_cuda.rasterize, inputs, ARGUMENTS, **options)


def surfels() -> Tensor:
    inputs = {**discs(25, seed=1), "means2D": torch.zeros(25, 3)}
    return drawn(surfels_cuda.rasterize, inputs, SURFELS)


def drawn(
    draw: Callable[..., tuple[Tensor, ...]], inputs: dict[str, Tensor], names: tuple[str, ...], **options: Any
) -> Tensor:
    leaves = {name: value.float().cuda().requires_grad_() for name, value in inputs.items()}
    settings = in_precision(look_at(90, 70, **options), torch.float32, "cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    return draw(settings, *(leaves.get(name) for name in names))[0]


def similarity() -> Tensor:
    first, second = (rand(1, 3, 96, 128, seed=seed).float().cuda() for seed in (0, 1))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    return ssim_cuda.mean_ssim(first.requires_grad_(), second, "same")


FRAMES = ((gaussians, 1), (gaussians_used, 1), (gaussians_moved, 1), (surfels, 1), (similarity, 0))


@pytest.mark.parametrize(("frame", "most"), FRAMES)
def test_compiled_frames_wait_once_at_most(
    frame: Callable[[], Tensor], most: int, compiled: None, recwarn: pytest.WarningsRecorder
) -> None:
    """For the number of pairs of tiles and Gaussians; the first call loads code and is not counted."""
    for _ in range(2):
        recwarn.clear()
        warnings.simplefilter("always")
        try:
            frame().sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waited = [str(one.message) for one in recwarn if "synchronizing" in str(one.message)]
    assert len(waited) <= most, waited
