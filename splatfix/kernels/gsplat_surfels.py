"""From surfels in the image to pixels, for `gsplat_csrc.py`, where the rules are told."""

from __future__ import annotations

from typing import Optional

from torch import Tensor

from splatfix.kernels.gsplat_dispatch import served

__all__ = ["rasterize_to_indices_2dgs", "rasterize_to_pixels_2dgs_bwd", "rasterize_to_pixels_2dgs_fwd"]


@served
def rasterize_to_pixels_2dgs_fwd(
    means2d: Tensor,
    ray_transforms: Tensor,
    colors: Tensor,
    opacities: Tensor,
    normals: Tensor,
    backgrounds: Optional[Tensor],
    masks: Optional[Tensor],
    image_width: int,
    image_height: int,
    tile_size: int,
    tile_offsets: Tensor,
    flatten_ids: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """[..., N, D] surfels -> colors [..., H, W, D], alphas [..., H, W, 1], normals [..., H, W, 3], distortion and median depth
    [..., H, W, 1], last_ids and median_ids [..., H, W] int32. The last channel of `colors` is the depth."""
    raise NotImplementedError


@served
def rasterize_to_pixels_2dgs_bwd(
    means2d: Tensor,
    ray_transforms: Tensor,
    colors: Tensor,
    opacities: Tensor,
    normals: Tensor,
    densify: Tensor,
    backgrounds: Optional[Tensor],
    masks: Optional[Tensor],
    image_width: int,
    image_height: int,
    tile_size: int,
    tile_offsets: Tensor,
    flatten_ids: Tensor,
    render_colors: Tensor,
    render_alphas: Tensor,
    last_ids: Tensor,
    median_ids: Tensor,
    v_render_colors: Tensor,
    v_render_alphas: Tensor,
    v_render_normals: Tensor,
    v_render_distort: Tensor,
    v_render_median: Tensor,
    absgrad: bool,
) -> tuple[Optional[Tensor], Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Absolute gradients of means2d (None without `absgrad`), and gradients of means2d, ray_transforms, colors, opacities,
    normals, densify."""
    raise NotImplementedError


@served
def rasterize_to_indices_2dgs(
    range_start: int,
    range_end: int,
    transmittances: Tensor,
    means2d: Tensor,
    ray_transforms: Tensor,
    opacities: Tensor,
    image_width: int,
    image_height: int,
    tile_size: int,
    tile_offsets: Tensor,
    flatten_ids: Tensor,
) -> tuple[Tensor, Tensor]:
    """As `rasterize_to_indices_3dgs`."""
    raise NotImplementedError
