"""Tiles, and from Gaussians in the image to pixels, for `gsplat_csrc.py`, where the rules are told."""

from __future__ import annotations

from typing import Optional

from torch import Tensor

from splatfix.kernels.gsplat_dispatch import served

__all__ = [
    "intersect_offset",
    "intersect_tile",
    "rasterize_to_indices_3dgs",
    "rasterize_to_pixels_3dgs_bwd",
    "rasterize_to_pixels_3dgs_fwd",
]


@served
def intersect_tile(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    image_ids: Optional[Tensor],
    gaussian_ids: Optional[Tensor],
    images: int,
    tile_size: int,
    tile_width: int,
    tile_height: int,
    sort: bool,
    segmented: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """[..., N, D], or packed [nnz, D] -> tiles of each [..., N] int32; and of each pair, sorted: id int64, flat index int32.

    An id is image | tile | bits of the depth as float32, the last of 32 bits, the tile of bit_width(tiles).
    """
    raise NotImplementedError


@served
def intersect_offset(isect_ids: Tensor, images: int, tile_width: int, tile_height: int) -> Tensor:
    """Sorted ids -> first pair of each tile, [images, tile_height, tile_width] int32."""
    raise NotImplementedError


@served
def rasterize_to_pixels_3dgs_fwd(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    backgrounds: Optional[Tensor],
    masks: Optional[Tensor],
    image_width: int,
    image_height: int,
    tile_size: int,
    tile_offsets: Tensor,
    flatten_ids: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """[..., N, D] or packed [nnz, D] Gaussians -> colors [..., H, W, D], alphas [..., H, W, 1], last_ids [..., H, W] int32."""
    raise NotImplementedError


@served
def rasterize_to_pixels_3dgs_bwd(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    backgrounds: Optional[Tensor],
    masks: Optional[Tensor],
    image_width: int,
    image_height: int,
    tile_size: int,
    tile_offsets: Tensor,
    flatten_ids: Tensor,
    render_alphas: Tensor,
    last_ids: Tensor,
    v_render_colors: Tensor,
    v_render_alphas: Tensor,
    absgrad: bool,
) -> tuple[Optional[Tensor], Tensor, Tensor, Tensor, Tensor]:
    """Absolute gradients of means2d (None without `absgrad`), and gradients of means2d, conics, colors, opacities."""
    raise NotImplementedError


@served
def rasterize_to_indices_3dgs(
    range_start: int,
    range_end: int,
    transmittances: Tensor,
    means2d: Tensor,
    conics: Tensor,
    opacities: Tensor,
    image_width: int,
    image_height: int,
    tile_size: int,
    tile_offsets: Tensor,
    flatten_ids: Tensor,
) -> tuple[Tensor, Tensor]:
    """Which Gaussian [M] int64 (of its image) is blended in which pixel [M] int64 (image H W + row W + column), front to back.

    The range counts batches of tile_size^2 pairs of a tile.
    """
    raise NotImplementedError
