"""The photometric loss, and held-out quality: PSNR, SSIM, L1 and (where its weights are installed) LPIPS."""

from __future__ import annotations

import math
from typing import Callable, List, NamedTuple, Optional

from torch import Tensor

from smoke_trainer.errors import SceneError
from smoke_trainer.record import ImageQuality

MAX_PSNR = 100.0  # dB, of two equal images
MIN_MASK_SHARE = 1e-9  # so that nothing is divided by 0
Ssim = Callable[[Tensor, Tensor], Tensor]


class Loss(NamedTuple):
    """Scalars: `total` to minimise, its two parts, and the mean squared error of unmasked pixels (without gradient)."""

    total: Tensor
    l1: Tensor
    ssim: Tensor
    squared_error: Tensor


def photometric_loss(
    rendered: Tensor, gt: Tensor, ssim: Ssim, lambda_dssim: float, mask: Optional[Tensor] = None
) -> Loss:
    """(1 - lambda) L1 + lambda (1 - SSIM) of two images [3, H, W]; both are black where `mask` [1, H, W] is zero."""
    if mask is not None:
        rendered, gt = rendered * mask, gt * mask
    error = rendered - gt
    l1 = error.abs().mean()
    similarity = ssim(rendered[None], gt[None])
    total = (1.0 - lambda_dssim) * l1 + lambda_dssim * (1.0 - similarity)
    squared_error = error.detach().square().mean()
    if mask is not None:  # masked pixels add nothing to the sum, and must not count in the mean
        squared_error = squared_error / mask.mean().clamp_min(MIN_MASK_SHARE)
    return Loss(total, l1, similarity, squared_error)


def psnr_from(error: float) -> float:
    """PSNR in dB from a mean squared error of values in 0..1."""
    if error <= 10.0 ** (-MAX_PSNR / 10.0):
        return MAX_PSNR
    return -10.0 * math.log10(error)


class QualityMean:
    """The mean quality of image pairs, added one by one."""

    def __init__(self, ssim: Ssim) -> None:
        self._ssim = ssim
        self._rows: List[List[float]] = []  # PSNR, SSIM, L1

    def add(self, rendered: Tensor, gt: Tensor, mask: Optional[Tensor] = None) -> None:
        """Add a pair [3, H, W]; the rendering is clamped to 0..1 as a viewer would.

        Where `mask` [1, H, W] is zero both are black for SSIM, and PSNR and L1 are means over the other pixels.
        A view that is masked out altogether is left out.
        """
        if mask is not None and not bool(mask.any()):
            return
        loss = photometric_loss(rendered.clamp(0.0, 1.0), gt, self._ssim, 0.0, mask)
        l1 = float(loss.l1)
        if mask is not None:
            l1 /= float(mask.mean())
        self._rows.append([psnr_from(float(loss.squared_error)), float(loss.ssim), l1])

    def result(self) -> ImageQuality:
        """The means, without LPIPS; raises SceneError where no pixel of any view counts."""
        count = len(self._rows)
        if count == 0:
            raise SceneError(
                "the masks leave no pixel of any held-out view",
                "there is nothing that held-out quality could be measured on",
                "check the masks: black hides a pixel, white lets it count",
            )
        mean_psnr, ssim, l1 = (sum(column) / count for column in zip(*self._rows))
        note = "not measured: LPIPS is part of the last evaluation only"
        return ImageQuality(mean_psnr, ssim, l1, count, lpips_note=note)
