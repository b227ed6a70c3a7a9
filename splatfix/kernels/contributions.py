"""Where each Gaussian contributes to an image: the per-Gaussian sums by which taming-3dgs and FastGS densify.

A Gaussian *contributes* to a pixel where its alpha is at least 1/255 and the pixel has not stopped: where it is blended, in the
terms of `rasterizer.py`, whose projection, tiles and blending these sums use. Taming-3DGS (Mallick et al. 2024) sums over such
pixels a weight of the pixel, 1, alpha T and the distance from the Gaussian's center; FastGS (2025) counts those of them that a
map marks; whether there is any, as 3dgs-mcmc asks, `rasterize` tells along with the image. MonoGS (2024) counts the pixels that
are still mostly transparent behind a Gaussian, Mini-Splatting (2024) those where none weighs more, and LightGaussian (2024) sums
its opacity times the transmittance in front of it. No gradient flows through them, in the originals either.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from splatfix.kernels.binning import AREA, to_tiles
from splatfix.kernels.blending import Alpha, add_rows, blend, chunk_cells, full_precision, untraced
from splatfix.kernels.projection import GaussianRasterizationSettings, Gaussians, camera_of, positions_in_view
from splatfix.kernels.scene import arrange

__all__ = ["Contributions", "contributions", "screen_positions"]


class Contributions(NamedTuple):
    """Per Gaussian; 0 for those that contribute to no pixel. Sums are taken in double precision where the device has it.

    Attributes:
        pixels: [P] int32, how many pixels which it contributes.
        weight: [P], the sum of `pixel_weights` over them (0 where none were given).
        blend: [P], the sum of alpha T over them.
        distance: [P], the sum of the distances from its center to theirs, pixels.
        transmittance: [P], the sum of T in front of it over them.
        near: [P] int32, at how many of them more than half of the light still passes behind it.
        strongest: [P] int32, at how many of them no other alpha T is larger; of equal ones the first counts.
    """

    pixels: Tensor
    weight: Tensor
    blend: Tensor
    distance: Tensor
    transmittance: Tensor
    near: Tensor
    strongest: Tensor


@untraced
@torch.no_grad()
def contributions(
    settings: GaussianRasterizationSettings,
    means3D: Tensor,
    opacities: Tensor,
    scales: Optional[Tensor] = None,
    rotations: Optional[Tensor] = None,
    cov3D_precomp: Optional[Tensor] = None,
    pixel_weights: Optional[Tensor] = None,
    *,
    budget_bytes: int = 256 << 20,
) -> Contributions:
    """Sum over the pixels to which each Gaussian contributes. One pass over the image, the cost of a forward pass.

    Args:
        settings: as for `rasterizer.rasterize`, which must accept the same inputs; without `subpixel_offset`.
        means3D, opacities, scales, rotations, cov3D_precomp: as for `rasterize`.
        pixel_weights: [H, W], or H * W numbers in the order of the rows.

    Raises:
        ValueError: `pixel_weights` has another number of entries, or pixels are moved.
    """
    if settings.subpixel_offset is not None:
        raise ValueError("Distances to moved pixels are not summed: leave `subpixel_offset` out.")
    height, width = int(settings.image_height), int(settings.image_width)
    if pixel_weights is not None and pixel_weights.numel() != height * width:
        raise ValueError(
            f"`pixel_weights` has the shape {tuple(pixel_weights.shape)}, not one number for each of {height} x {width}."
        )
    blank = means3D.new_zeros(means3D.shape[0], 1)
    given = Gaussians(means3D, None, opacities, None, blank, scales, rotations, cov3D_precomp)
    on_gpu = _by_cuda_kernels(settings, given, pixel_weights)
    if on_gpu is not None:
        return on_gpu
    with full_precision(means3D.device):
        made = arrange(settings, given)
        scene, geometry = made.scene, made.splats.x
        tiles = ((height + 7) // 8, (width + 7) // 8)
        planes = means3D.new_zeros(2, height, width)
        planes[0] = 1.0
        if pixel_weights is not None:
            planes[1] = pixel_weights.detach().to(means3D).view(height, width)
        per_tile = to_tiles(planes, tiles, scene.pairs.tile)
        totals = geometry.new_zeros(6, scene.features.shape[0])
        largest = means3D.new_zeros(per_tile.shape[0], AREA)
        largest_row = torch.full_like(largest, totals.shape[1] - 1, dtype=torch.int64)

        def visit(chosen: Tensor, state: Alpha, weights: Tensor) -> None:
            shape = (-1, chosen.numel(), AREA)
            inside, marked = per_tile.index_select(0, chosen).unbind(1)
            blended = (weights > 0).to(weights.dtype).view(shape)
            in_front = state.transmittance[:-1].view(shape) * blended * inside
            passing = (state.transmittance[1:] > 0.5).to(weights.dtype).view(shape)
            across = state.offset_x.to(weights.dtype).view(-1, chosen.numel(), 1) - scene.basis[1]
            down = state.offset_y.to(weights.dtype).view(-1, chosen.numel(), 1) - scene.basis[2]
            sums = (
                blended * inside,
                blended * marked,
                weights.view(shape) * inside,
                torch.sqrt(across * across + down * down) * blended * inside,
                in_front,
                passing * blended * inside,
            )
            per_row = torch.stack([item.sum(-1).view(-1) for item in sums])
            add_rows(totals, state.rows, per_row.to(totals.dtype))
            best, rank = (weights.view(shape) * inside).max(0)
            rows = state.rows.view(-1, chosen.numel(), 1).expand(-1, -1, AREA).gather(0, rank[None])[0]
            before = largest.index_select(0, chosen)
            row_before = largest_row.index_select(0, chosen)
            largest.index_copy_(0, chosen, torch.maximum(best, before))
            largest_row.index_copy_(0, chosen, torch.where(best > before, rows, row_before))

        blend(scene, 0, chunk_cells(budget_bytes, means3D), keep=False, visit=visit)
        full = geometry.new_zeros(6, means3D.shape[0]).index_copy_(1, made.order, totals[:, :-1])
        strongest = torch.bincount(largest_row.view(-1), minlength=totals.shape[1])[:-1].to(torch.int32)
        counts = strongest.new_zeros(means3D.shape[0]).index_copy_(0, made.order, strongest)
    weight, share, distance, in_front = full[1:5].to(means3D.dtype).unbind(0)
    pixels, near = full[0].round().to(torch.int32), full[5].round().to(torch.int32)
    return Contributions(pixels, weight, share, distance, in_front, near, counts)


def _by_cuda_kernels(
    settings: GaussianRasterizationSettings, given: Gaussians, pixel_weights: Optional[Tensor]
) -> Optional[Contributions]:
    """The same by CUDA kernels, where they lie beside this file and serve these tensors; else None."""
    if not given.means3D.is_cuda:
        return None
    try:
        from splatfix.kernels.contributions_cuda import sums
        from splatfix.kernels.nvrtc import by_kernels
    except ImportError:  # a copy without them
        return None
    totals = by_kernels("contributions", given.means3D, lambda: sums(settings, given, pixel_weights))
    if totals is None:
        return None
    return Contributions(*totals)


@torch.no_grad()
def screen_positions(
    settings: GaussianRasterizationSettings, means3D: Tensor, radii: Tensor
) -> tuple[Tensor, Tensor]:
    """Pixel positions (x, y), [P, 2], and view-space depths, [P], of the Gaussians whose `radii` [P] are above 0; else 0."""
    with full_precision(means3D.device):
        _, _, z, x, y = positions_in_view(camera_of(settings, means3D), means3D)
    positions = torch.stack([x, y, z], dim=1)
    positions = torch.where((radii > 0)[:, None], positions, torch.zeros_like(positions)).to(means3D.dtype)
    return positions[:, :2].contiguous(), positions[:, 2].contiguous()
