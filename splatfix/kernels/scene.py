"""What the blending works on: the Gaussians of one image, front to back, in tables, with the tiles that they reach."""

from __future__ import annotations

import math
from typing import NamedTuple, Optional

import torch
from torch import Tensor

from splatfix.kernels.binning import AREA, TILE, Pairs, Reach, find_reach, list_pairs
from splatfix.kernels.projection import (
    Ellipses,
    GaussianRasterizationSettings,
    Gaussians,
    camera_of,
    colors_of,
    geometry_dtype,
    moves_pixels,
    project,
)

ALPHA_MIN = 1.0 / 255.0
ALPHA_CAP = 0.99
STOP = 1e-4  # a pixel ends before its transmittance falls below this
OFF = -1.0e4  # log2 of the opacity of padding: exp2 gives 0
LOG2E = 1.0 / math.log(2.0)


class Rules(NamedTuple):
    """Where rasterizers of the family differ in the blending."""

    cap: float = ALPHA_CAP
    stop: float = STOP
    through_cap: bool = True  # a capped alpha has the gradient of the uncapped one, else none


class ProjectedScene(NamedTuple):
    """Inputs of the blending: per-Gaussian tables with one extra row for padding, and the pixel grid."""

    geometry: Tensor  # [V + 1, 6] x, y, then -a'/2, -b', -c'/2 of the conic and the opacity, as log2
    ceiling: Optional[Tensor]  # [V + 1] highest log2 alpha where a conic is indefinite; None if none is
    features: Tensor  # [V + 1, F] colors, then depth, inverse depth and 1
    pairs: Pairs
    center_x: Tensor  # [N] tile centers, geometry precision
    center_y: Tensor
    basis: Tensor  # [6, 64] or, with sub-pixel offsets, [N, 6, 64]
    inside: Tensor  # [N, 64], 1 where the pixel of the tile is in the image, else 0
    rules: Rules = Rules()


def non_finite_rows(given: Gaussians) -> Optional[Tensor]:
    """[P] True where a Gaussian has a NaN or an infinity; None where all are finite (the usual case, found by the sum of all
    sums, for which a GPU is waited for once)."""
    bad: Optional[Tensor] = None
    used = [tensor for tensor in given._replace(means2D=None) if tensor is not None]  # which takes no part
    if bool(torch.isfinite(torch.stack([tensor.detach().sum() for tensor in used]).sum())):
        return bad
    for tensor in used:
        if not bool(torch.isfinite(tensor.detach().sum())):
            rows = ~torch.isfinite(tensor.detach()).reshape(tensor.shape[0], -1).all(1)
            if bool(rows.any()):  # else only the sum is not finite
                bad = rows if bad is None else bad | rows
    return bad


def _tables(splats: Ellipses, colors: Tensor) -> tuple[Tensor, Optional[Tensor], Tensor]:
    """`geometry`, `ceiling` and `features` of `ProjectedScene`, padding row included."""
    log_opacity = torch.log2(splats.opacity)
    scale = -0.5 * LOG2E / splats.det
    columns = [splats.x, splats.y, splats.c * scale, -2.0 * splats.b * scale, splats.a * scale, log_opacity]
    geometry = splats.x.new_zeros(splats.x.numel() + 1, 6)
    torch.stack(columns, dim=1, out=geometry[:-1])
    geometry[-1, 5] = OFF
    indefinite = (splats.det < 0) | (splats.a <= 0)
    ceiling = None
    if bool(indefinite.any()):
        top = torch.where(indefinite, log_opacity, torch.full_like(log_opacity, math.inf))
        ceiling = torch.cat([top, top.new_zeros(1)]).to(colors.dtype)
    depth = splats.z.to(colors.dtype)
    features = torch.cat([colors, torch.stack([depth, 1.0 / depth, torch.ones_like(depth)], dim=1)], dim=1)
    return geometry, ceiling, torch.cat([features, features.new_zeros(1, features.shape[1])])


def _pixel_grid(
    settings: GaussianRasterizationSettings, tile: Tensor, like: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tile centers x, y [N], monomials (1, u, v, u^2, uv, v^2) of the pixels about them, and the mask of real pixels."""
    height, width = int(settings.image_height), int(settings.image_width)
    columns = (width + TILE - 1) // TILE
    column, row = tile % columns, torch.div(tile, columns, rounding_mode="floor")
    steps = torch.arange(TILE, device=tile.device)
    v, u = (grid.reshape(1, AREA) for grid in torch.meshgrid(steps, steps, indexing="ij"))
    pixel_x, pixel_y = column[:, None] * TILE + u, row[:, None] * TILE + v
    inside = ((pixel_x < width) & (pixel_y < height)).to(like.dtype)
    middle = 0.5 * (TILE - 1)
    local_x, local_y = u.to(like.dtype) - middle, v.to(like.dtype) - middle
    if moves_pixels(settings):
        assert settings.subpixel_offset is not None
        offset = settings.subpixel_offset.detach().to(like)
        offset = offset[pixel_y.clamp_max(height - 1), pixel_x.clamp_max(width - 1)]  # [N, 64, 2]
        local_x, local_y = local_x + offset[..., 0], local_y + offset[..., 1]
    monomials = [torch.ones_like(local_x), local_x, local_y, local_x**2, local_x * local_y, local_y**2]
    basis = torch.stack(monomials, dim=1)
    if basis.shape[0] == 1 and not moves_pixels(settings):
        basis = basis[0]
    geometry = geometry_dtype(like)
    return column.to(geometry) * TILE + middle, row.to(geometry) * TILE + middle, basis, inside


class Arranged(NamedTuple):
    """What lies before the blending."""

    splats: Ellipses  # of all P
    radius: Tensor  # [P] int32, 0 where culled
    order: Tensor  # [V] visible Gaussians, front to back
    scene: ProjectedScene
    colors: int  # channels


def arrange(settings: GaussianRasterizationSettings, given: Gaussians) -> Arranged:
    """Project and list: the Gaussians of an image, front to back, in the tiles that they reach."""
    means3D = given.means3D
    camera = camera_of(settings, means3D)
    splats = project(camera, settings, given)
    reach = find_reach(camera, splats, means3D.dtype)
    broken = non_finite_rows(given)
    if broken is not None:
        reach.radius[broken] = 0
    # The 1/255 bound is exact per pair and pixel later; the slack here is for rounding.
    index = ((reach.radius > 0) & (splats.opacity >= ALPHA_MIN * (1 - 1e-6))).nonzero().view(-1)
    depth = splats.z.index_select(0, index).to(means3D.dtype)
    # front to back, ties by index; depth > 0, so its bits sort as it does, and integers sort faster
    bits = depth.view(torch.int32 if depth.dtype == torch.float32 else torch.int64)
    order = index.index_select(0, torch.sort(bits, stable=True)[1])
    visible = Ellipses(*(field.index_select(0, order) for field in splats))
    ordered = Reach(*(field.index_select(0, order) for field in reach))
    margin = 1e-3
    if moves_pixels(settings):
        assert settings.subpixel_offset is not None
        margin += float(settings.subpixel_offset.abs().max())
    pairs = list_pairs(camera, visible, ordered, margin)

    colors = colors_of(settings, given.rows(order))
    geometry, ceiling, features = _tables(visible, colors)
    scene = ProjectedScene(geometry, ceiling, features, pairs, *_pixel_grid(settings, pairs.tile, means3D))
    return Arranged(splats, reach.radius, order, scene, colors.shape[1])
