"""Held-out quality: PSNR, SSIM, L1 and (where its weights are) LPIPS of clamped renderings, averaged over views."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Optional

import torch
from torch import Tensor

from smoke_trainer.errors import SceneError
from smoke_trainer.losses import Ssim
from smoke_trainer.perceptual import Lpips

MAX_PSNR = 100.0  # of two equal images, so that reports stay free of infinities


@dataclass(frozen=True)
class Quality:
    """Means over the held-out views; PSNR in dB from each whole image's mean squared error.

    `lpips` is None where it was not measured; then `lpips_note` says why.
    """

    psnr: float
    ssim: float
    l1: float
    views: int
    lpips: Optional[float] = None
    lpips_note: str = "not measured: only the last evaluation does"

    def as_json(self) -> Dict[str, Any]:
        """For result.json."""
        return asdict(self)


def psnr(rendered: Tensor, truth: Tensor) -> float:
    """Peak signal-to-noise ratio in dB for values in 0..1."""
    return psnr_from(float(torch.mean((rendered - truth) ** 2)))


def psnr_from(error: float) -> float:
    """PSNR in dB from a mean squared error of values in 0..1."""
    return MAX_PSNR if error <= 10.0 ** (-MAX_PSNR / 10.0) else -10.0 * math.log10(error)


class QualityMean:
    """Collects one image pair after another."""

    def __init__(
        self, ssim: Ssim, lpips: Optional[Lpips] = None, lpips_note: str = Quality.lpips_note
    ) -> None:
        self._ssim = ssim
        self._lpips = lpips
        self._note = lpips_note
        self._rows: List[List[float]] = []

    def add(self, rendered: Tensor, truth: Tensor, mask: Optional[Tensor] = None) -> float:
        """Add a pair [3, H, W]; the rendering is clamped to 0..1 as a viewer would. Returns its PSNR.

        Where `mask` [1, H, W] is zero both are black for SSIM and LPIPS, and PSNR and L1 are means over the other pixels.
        A view that is masked out altogether is left out, and gives NaN.
        """
        rendered, share = rendered.clamp(0.0, 1.0), 1.0
        if mask is not None:
            rendered, truth, share = rendered * mask, truth * mask, float(mask.mean())
        if share == 0.0:
            return math.nan
        value = psnr_from(float(torch.mean((rendered - truth) ** 2)) / share)
        similarity = float(self._ssim(rendered[None], truth[None]))
        distance = math.nan if self._lpips is None else self._lpips(rendered, truth)
        self._rows.append([value, similarity, float((rendered - truth).abs().mean()) / share, distance])
        return value

    def result(self) -> Quality:
        """The means; raises SceneError where no pixel of any view counts."""
        count = len(self._rows)
        if count == 0:
            raise SceneError(
                "the masks leave no pixel of any held-out view",
                "there is nothing that held-out quality could be measured on",
                "check the masks: black hides a pixel, white lets it count",
            )
        psnr_, ssim, l1, lpips = (sum(row[column] for row in self._rows) / count for column in range(4))
        return Quality(psnr_, ssim, l1, count, None if self._lpips is None else lpips, self._note)
