"""The sums of `splatfix.kernels.contributions` on CUDA kernels: contributions.cu, behind projection and binning."""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor

from splatfix.kernels.nvrtc import module
from splatfix.kernels.rasterizer_cuda import arrange, frame_of

__all__ = ["sums"]


def sums(
    settings: Any,
    means3D: Tensor,
    opacities: Tensor,
    scales: Optional[Tensor] = None,
    rotations: Optional[Tensor] = None,
    cov3D_precomp: Optional[Tensor] = None,
    pixel_weights: Optional[Tensor] = None,
) -> Tensor:
    """[P, 4]: pixels, their weights, alpha times transmittance and distances; float32 on one GPU, from checked inputs."""
    count = means3D.shape[0]
    found = means3D.new_zeros(count, 4)
    if not count:
        return found
    frame = frame_of(settings, means3D)._replace(background=means3D.new_zeros(1))
    given = (means3D, None, opacities, None, means3D.new_zeros(count, 1), scales, rotations, cov3D_precomp)
    pairs = arrange(frame, [None if one is None else one.detach().contiguous() for one in given])
    weights = None if pixel_weights is None else pixel_weights.detach().to(means3D).contiguous()
    arguments = [pairs.ranges, pairs.gaussians, pairs.splats, weights, frame.width, frame.height, found]
    module("contributions.cu", {}, means3D).launch("contribute", frame.tiles, (256,), arguments)
    return found
