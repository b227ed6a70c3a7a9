"""The rasterizer of `splatfix.kernels.surfels` on its CUDA kernels: surfels.cu, and binning as for Gaussians."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from splatfix.kernels.nvrtc import module
from splatfix.kernels.rasterizer_cuda import (
    Frame,
    bands_of,
    blocks,
    by_tile,
    columns_of,
    copies,
    frame_of,
    harmonics_backward,
    like_each,
    plain,
)

_THREADS = 256
_SUMS = 19  # per surfel, before the colors; see surfels.cu
_MOST_COLORS = 8  # blend_surfels_backward: 34 KB of shared memory of 48, and 1.2 for each channel


def refusal(settings: Any) -> str:
    """Why this call needs the pure-PyTorch rasterizer; empty where the kernels serve it."""
    if settings.bg.numel() > _MOST_COLORS:
        return f"surfels of more than {_MOST_COLORS} channels have no CUDA kernel here"
    return ""


class _SurfelPairs(NamedTuple):
    """What the way back needs of the way there."""

    surfels: Tensor  # [P, 16]
    features: Tensor  # [P, C + 3]
    depths: Tensor  # [P]
    radii: Tensor  # [P] int32
    gaussians: Tensor  # [E] int32, by tile, then depth
    ranges: Tensor  # [tiles, 2] int32


def _arrange(frame: Frame, kernels: Any, inputs: Sequence[Optional[Tensor]]) -> _SurfelPairs:
    means, _, opacities, shs, colors, scales, rotations, transforms = inputs
    assert means is not None
    count, channels = means.shape[0], frame.background.numel()
    surfels, features = means.new_empty(count, 16), means.new_empty(count, channels + 3)
    depths = means.new_empty(count)
    radii = torch.empty(count, dtype=torch.int32, device=means.device)
    counts, boxes = torch.empty_like(radii), radii.new_empty(count, 4)
    given = [means, opacities, scales, rotations, transforms, shs, colors, frame.camera, count]
    numbers = [frame.width, frame.height, frame.modifier, frame.degree, bands_of(shs)]
    made = [surfels, features, depths, radii, boxes, counts]
    kernels.launch("project_surfels", blocks(count, 128), 128, [*given, *numbers, channels, *made])

    def listing(binning: Any, order: Tensor, ends: Tensor, tiles: Tensor, gaussians: Tensor) -> None:
        arguments = [boxes, order, ends, counts, count, frame.tiles[0], tiles, gaussians]
        binning.launch("list_boxes", blocks(count, _THREADS), _THREADS, arguments)

    gaussians, ranges, _ = by_tile(depths, counts, frame.tiles, listing)
    return _SurfelPairs(surfels, features, depths, radii, gaussians, ranges)


class _RasterizeSurfels(torch.autograd.Function):
    """The inputs of `rasterize` -> color, radii, allmap: copies where backward reads them."""

    @staticmethod
    def forward(ctx: Any, settings: Any, *inputs: Optional[Tensor]) -> Tuple[Tensor, Tensor, Tensor]:
        inputs = plain(inputs)
        means = inputs[0]
        assert means is not None
        frame = frame_of(settings, means)
        channels = frame.background.numel()
        ctx.set_materialize_grads(False)
        image = means.new_empty(channels, frame.height, frame.width)
        maps = means.new_empty(7, frame.height, frame.width)
        if not means.shape[0]:
            image[:] = frame.background.view(-1, 1, 1)
            ctx.frame = None
            ctx.save_for_backward(*inputs)
            return image, torch.empty(0, dtype=torch.int32, device=means.device), maps.zero_()
        kernels = module("surfels.cu", {"COLORS": channels}, means)
        pairs = _arrange(frame, kernels, inputs)
        moments = means.new_empty(2, frame.height, frame.width)
        lasts = torch.empty(frame.height, frame.width, dtype=torch.int32, device=means.device)
        medians = torch.empty_like(lasts)
        given = [pairs.ranges, pairs.gaussians, pairs.surfels, pairs.features, pairs.depths, frame.background]
        made = [frame.width, frame.height, image, maps, moments, lasts, medians]
        kernels.launch("blend_surfels", frame.grid, _THREADS, [*given, *made])
        if not any(ctx.needs_input_grad):
            return image, pairs.radii, maps
        ctx.frame = frame
        ctx.save_for_backward(*inputs, image, maps, moments, lasts, medians, *pairs)
        image, radii, maps = copies((image, pairs.radii, maps))
        ctx.mark_non_differentiable(radii)
        return image, radii, maps

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, upstream: Optional[Tensor], _radii: Optional[Tensor], upstream_maps: Optional[Tensor]
    ) -> Tuple[Optional[Tensor], ...]:
        inputs, kept = ctx.saved_tensors[:8], ctx.saved_tensors[8:]
        frame: Optional[Frame] = ctx.frame
        if frame is None:
            return (None, *like_each(inputs))
        means, means2D, _, shs, _, scales, rotations, transforms = inputs
        image, maps, moments, lasts, medians = kept[:5]
        pairs = _SurfelPairs(*kept[5:])
        count, channels = means.shape[0], frame.background.numel()
        kernels = module("surfels.cu", {"COLORS": channels}, means)
        sums = means.new_zeros(count, _SUMS + channels)
        given = [pairs.ranges, pairs.gaussians, pairs.surfels, pairs.features, pairs.depths, frame.background]
        pulled = plain((upstream, upstream_maps))
        made = [image, maps, moments, *pulled, lasts, medians, frame.width, frame.height, sums]
        kernels.launch("blend_surfels_backward", frame.grid, _THREADS, [*given, *made])
        gradients = like_each(inputs)
        by_means, by_means2D, by_opacities, _, by_colors, by_scales, by_rotations, by_transforms = gradients
        given = [means, scales, rotations, transforms, frame.camera, pairs.radii, sums, count]
        numbers = [frame.width, frame.height, frame.modifier, channels, columns_of(means2D)]
        made = [by_means, by_means2D, by_opacities, by_scales, by_rotations, by_transforms, by_colors]
        kernels.launch("project_surfels_backward", blocks(count, 128), 128, [*given, *numbers, *made])
        if shs is not None:
            harmonics_backward(frame, inputs, pairs.radii, sums, _SUMS, gradients)
        return (None, *gradients)


def rasterize(settings: Any, *inputs: Optional[Tensor]) -> Tuple[Tensor, Tensor, Tensor]:
    """Color [C, H, W], radii [P] and allmap [7, H, W], from checked inputs on one GPU, float32.

    `inputs` are means3D, means2D, opacities, shs, colors_precomp, scales, rotations, transforms.
    """
    apply: Any = _RasterizeSurfels.apply
    images: Tuple[Tensor, Tensor, Tensor] = apply(settings, *inputs)
    return images
