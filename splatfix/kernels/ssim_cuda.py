"""`fused_ssim` on its CUDA kernels: ssim.cu, with the autograd node around it."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from splatfix.kernels.nvrtc import NoKernels, module

_TILE, _THREADS, _HALO = (32, 16), 256, 5
_MOST_IMAGES = _MOST_ROWS = 65535  # of one channel, and of their tiles, in a launch: what a grid allows


def _grid(images: Tensor) -> Tuple[int, int, int]:
    batch, channels, height, width = images.shape
    return -(-width // _TILE[0]), -(-height // _TILE[1]), batch * channels


class _MeanOnCuda(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, img1: Tensor, img2: Tensor, edge: int) -> Tensor:
        first, second = img1.detach().contiguous(), img2.detach().contiguous()
        batch, channels, height, width = first.shape
        grid = _grid(first)
        count = batch * channels * (height - 2 * edge) * (width - 2 * edge)
        sums = first.new_empty(grid[0] * grid[1] * grid[2])
        slopes = first.new_empty(batch, channels, 3, height, width) if ctx.needs_input_grad[0] else None
        module("ssim.cu", {}, first).launch(
            "ssim_forward",
            grid,
            _THREADS,
            [first, second, height, width, edge, 1.0 / count, sums, slopes],
        )
        if slopes is not None:
            ctx.save_for_backward(first, second, slopes)
        return sums.sum() / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Tuple[Optional[Tensor], ...]:
        first, second, slopes = ctx.saved_tensors
        gradient = torch.empty_like(first)
        height, width = first.shape[2:]
        module("ssim.cu", {}, first).launch(
            "ssim_backward",
            _grid(first),
            _THREADS,
            [first, second, slopes, upstream.reshape(1).contiguous(), height, width, gradient],
        )
        return gradient, None, None


def mean_ssim(img1: Tensor, img2: Tensor, padding: str) -> Tensor:
    """Mean SSIM of checked images [B, C, H, W], float32 on one GPU; the gradient goes to `img1`.

    Raises:
        NoKernels: the images are higher than a launch.
    """
    if img1.shape[2] > _MOST_ROWS * _TILE[1]:
        raise NoKernels(
            f"images of {img1.shape[2]} rows of pixels, and the CUDA kernels count {_MOST_ROWS * _TILE[1]}"
        )
    images = img1.shape[0] * img1.shape[1]
    if images > _MOST_IMAGES:
        first, second = (one.reshape(images, 1, *one.shape[2:]) for one in (img1, img2))
        parts = []
        for start in range(0, images, _MOST_IMAGES):
            some = slice(start, start + _MOST_IMAGES)
            parts.append(mean_ssim(first[some], second[some], padding) * (first[some].shape[0] / images))
        return torch.stack(parts).sum()
    apply: Any = _MeanOnCuda.apply
    edge = _HALO if padding == "valid" else 0
    mean: Tensor = apply(img1, img2, edge)
    return mean
