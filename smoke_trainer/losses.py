"""The photometric loss: (1 - w) L1 + w (1 - SSIM)."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

from torch import Tensor

Ssim = Callable[[Tensor, Tensor], Tensor]


class Loss(NamedTuple):
    """The scalar to minimise and its two parts."""

    total: Tensor
    l1: Tensor
    ssim: Tensor


def photometric_loss(
    rendered: Tensor, truth: Tensor, ssim: Ssim, dssim_weight: float, mask: Optional[Tensor] = None
) -> Loss:
    """Compare two images [3, H, W]; where `mask` [1, H, W] is zero, pixels do not count."""
    if mask is not None:
        rendered, truth = rendered * mask, truth * mask
    l1 = (rendered - truth).abs().mean()
    similarity = ssim(rendered[None], truth[None])
    return Loss((1.0 - dssim_weight) * l1 + dssim_weight * (1.0 - similarity), l1, similarity)
