"""The sums of `splatfix.kernels.contributions` on CUDA kernels: contributions.cu, behind projection and binning."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import torch
from torch import Tensor

from splatfix.kernels.nvrtc import module
from splatfix.kernels.rasterizer_cuda import arrange, frame_of, plain


def sums(
    settings: Any, given: Sequence[Optional[Tensor]], pixel_weights: Optional[Tensor]
) -> Tuple[Tensor, ...]:
    """What `Contributions` has, in its order, [P] each; float32 on one GPU, from checked inputs.

    `given` are means3D, means2D, opacities, shs, colors (of one channel), scales, rotations, cov3D.
    """
    means3D = given[0]
    assert means3D is not None
    count = means3D.shape[0]
    counts = torch.zeros(count, 3, dtype=torch.int32, device=means3D.device)
    sums_of = means3D.new_zeros(count, 4)
    if count:
        frame = frame_of(settings, means3D)._replace(background=means3D.new_zeros(1))
        _, pairs = arrange(frame, plain(given))
        weights: Optional[Tensor] = None
        if pixel_weights is not None:
            weights = pixel_weights.detach().to(means3D).contiguous()
        arguments = [pairs.ranges, pairs.gaussians, pairs.splats, weights, frame.width, frame.height]
        kernels = module("contributions.cu", {}, means3D)
        kernels.launch("contribute", frame.grid, 256, [*arguments, counts, sums_of])
    pixels, near, strongest = counts.unbind(1)
    return (pixels, *sums_of.unbind(1), near, strongest)
