"""Held-out quality: PSNR, SSIM and L1 of clamped renderings, averaged over views."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List

import torch
from torch import Tensor

from smoke_trainer.losses import Ssim

MAX_PSNR = 100.0  # of two equal images, so that reports stay free of infinities


@dataclass(frozen=True)
class Quality:
    """Means over the held-out views; PSNR in dB from each whole image's mean squared error."""

    psnr: float
    ssim: float
    l1: float
    views: int

    def as_json(self) -> Dict[str, Any]:
        """For result.json. LPIPS needs the weights of a network that this trainer does not carry."""
        return {
            "psnr": self.psnr,
            "ssim": self.ssim,
            "l1": self.l1,
            "views": self.views,
            "lpips": None,
            "lpips_note": "not measured: weights not found",
        }


def psnr(rendered: Tensor, truth: Tensor) -> float:
    """Peak signal-to-noise ratio in dB for values in 0..1."""
    error = float(torch.mean((rendered - truth) ** 2))
    return MAX_PSNR if error <= 10.0 ** (-MAX_PSNR / 10.0) else -10.0 * math.log10(error)


class QualityMean:
    """Collects one image pair after another."""

    def __init__(self, ssim: Ssim) -> None:
        self._ssim = ssim
        self._rows: List[List[float]] = []

    def add(self, rendered: Tensor, truth: Tensor) -> float:
        """Add a pair [3, H, W]; the rendering is clamped to 0..1 as a viewer would. Returns its PSNR."""
        rendered = rendered.clamp(0.0, 1.0)
        value = psnr(rendered, truth)
        similarity = float(self._ssim(rendered[None], truth[None]))
        self._rows.append([value, similarity, float((rendered - truth).abs().mean())])
        return value

    def result(self) -> Quality:
        """The means."""
        count = len(self._rows)
        means = [sum(row[column] for row in self._rows) / count for column in range(3)]
        return Quality(means[0], means[1], means[2], count)
