"""The sums of `splatfix.kernels.contributions` on CUDA kernels: contributions.cu, behind projection and binning."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from torch import Tensor

from splatfix.kernels.nvrtc import module
from splatfix.kernels.rasterizer_cuda import arrange, frame_of, plain

__all__ = ["sums"]


def sums(settings: Any, given: Sequence[Optional[Tensor]], pixel_weights: Optional[Tensor]) -> Tensor:
    """[P, 4]: pixels, their weights, alpha times transmittance and distances; float32 on one GPU, from checked inputs.

    `given` are means3D, means2D, opacities, shs, colors (of one channel), scales, rotations, cov3D.
    """
    means3D = given[0]
    assert means3D is not None
    count = means3D.shape[0]
    sums_of = means3D.new_zeros(count, 4)
    if not count:
        return sums_of
    frame = frame_of(settings, means3D)._replace(background=means3D.new_zeros(1))
    pairs = arrange(frame, plain(given))
    weights: Optional[Tensor] = None
    if pixel_weights is not None:
        weights = pixel_weights.detach().to(means3D).contiguous()
    arguments = [pairs.ranges, pairs.gaussians, pairs.splats, weights, frame.width, frame.height, sums_of]
    module("contributions.cu", {}, means3D).launch("contribute", frame.tiles, (256,), arguments)
    return sums_of
