"""The photometric loss: (1 - w) L1 + w (1 - SSIM)."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

from torch import Tensor

FEWEST_PIXELS = 1e-9  # of an image that a mask may leave, so that nothing is divided by 0
Ssim = Callable[[Tensor, Tensor], Tensor]


class Loss(NamedTuple):
    """The scalar to minimise, its two parts, and the mean squared error where the mask is not zero (without gradient; the
    PSNR of progress)."""

    total: Tensor
    l1: Tensor
    ssim: Tensor
    squared_error: Tensor


def photometric_loss(
    rendered: Tensor, truth: Tensor, ssim: Ssim, dssim_weight: float, mask: Optional[Tensor] = None
) -> Loss:
    """Compare two images [3, H, W]; where `mask` [1, H, W] is zero both are black, so that nothing is learned there."""
    if mask is not None:
        rendered, truth = rendered * mask, truth * mask
    error = rendered - truth
    l1 = error.abs().mean()
    similarity = ssim(rendered[None], truth[None])
    total = (1.0 - dssim_weight) * l1 + dssim_weight * (1.0 - similarity)
    squared = error.detach().square().mean()
    return Loss(
        total, l1, similarity, squared if mask is None else squared / mask.mean().clamp_min(FEWEST_PIXELS)
    )
