"""From Gaussians in the image to pixels, for `gsplat_csrc.py`, where the rules are told."""

from __future__ import annotations

import math
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from splatfix.kernels.binning import AREA
from splatfix.kernels.blending import Alpha, blend, blend_backward, chunk_cells, full_precision
from splatfix.kernels.gsplat_dispatch import served
from splatfix.kernels.gsplat_tiles import Cells, Grid, cells_of, pixel_offsets, to_cells, to_pixels
from splatfix.kernels.projection import geometry_dtype
from splatfix.kernels.scene import LOG2E, OFF, ProjectedScene, Rules

_BUDGET = 256 << 20  # bytes of the temporary pixel buffers of a pass
_PLAN = "_splatfix_plan"  # an attribute of `last_ids`
ALPHA_CAP = 0.999
STOP = 1e-4  # a pixel ends before its transmittance falls to this


def _scene(
    grid: Grid,
    means2d: Tensor,
    conics: Tensor,
    features: Tensor,
    opacities: Tensor,
    masks: Optional[Tensor],
    ranks: Optional[Tuple[int, int]] = None,
) -> Tuple[Cells, ProjectedScene]:
    """What the blending works on, without the pairs whose ellipse alpha >= 1/255 misses the cell."""
    geometry = geometry_dtype(means2d)
    x, y = means2d.reshape(-1, 2).to(geometry).unbind(1)
    a, b, c = conics.reshape(-1, 3).to(geometry).unbind(1)
    log_opacity = torch.log2(opacities.reshape(-1).to(geometry).clamp_min(1e-30))
    table = x.new_zeros(x.numel() + 1, 6)
    torch.stack([x, y, -0.5 * LOG2E * a, -LOG2E * b, -0.5 * LOG2E * c, log_opacity], dim=1, out=table[:-1])
    table[-1, 5] = OFF
    indefinite = (a * c - b * b <= 0) | (a <= 0)

    def reaches(gaussian: Tensor, first: Tensor, last: Tensor) -> Tensor:
        """Tell whether alpha reaches 1/255 between the first and last pixel centers [M, S, 2] of cells; a little too often."""
        one = table.index_select(0, gaussian)[:, None]
        middle, (aa, bb, cc, least_log) = one[..., :2], one[..., 2:].float().unbind(2)
        low_x, low_y = (first - middle).float().unbind(2)
        high_x, high_y = (last - middle).float().unbind(2)
        near_x, near_y = low_x.clamp_min(0.0).minimum(high_x), low_y.clamp_min(0.0).minimum(high_y)
        # a convex function has its least value in a rectangle on the edges that face its center, or there
        opposite_x = (-0.5 * bb / aa * near_y).maximum(low_x).minimum(high_x)
        opposite_y = (-0.5 * bb / cc * near_x).maximum(low_y).minimum(high_y)
        needed = -least_log - math.log2(255.0) - 1e-4
        along_x = 0.999996 * (aa * opposite_x**2 + cc * near_y**2) + bb * opposite_x * near_y
        along_y = 0.999996 * (aa * near_x**2 + cc * opposite_y**2) + bb * near_x * opposite_y
        reached = torch.maximum(along_x, along_y) >= needed
        return reached | indefinite.index_select(0, gaussian)[:, None]

    cells = cells_of(grid, reaches, means2d, masks, ranks)
    ceiling = None
    if bool(indefinite.any()):
        top = torch.where(indefinite, log_opacity, torch.full_like(log_opacity, math.inf))
        ceiling = torch.cat([top, top.new_zeros(1)]).to(features.dtype)
    u, v = pixel_offsets(means2d)
    basis = torch.stack([torch.ones_like(u), u, v, u * u, u * v, v * v])
    inside = (cells.pixel < grid.pixels).to(means2d.dtype)
    stop = torch.tensor(STOP, dtype=means2d.dtype)
    rules = Rules(ALPHA_CAP, float(torch.nextafter(stop, torch.ones_like(stop))), through_cap=False)
    features = torch.cat([features, features.new_zeros(1, features.shape[1])])
    center_x, center_y = cells.center.unbind(1)
    return cells, ProjectedScene(
        table, ceiling, features, cells.pairs, center_x, center_y, basis, inside, rules
    )


@served
def rasterize_to_pixels_3dgs_fwd(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    backgrounds: Optional[Tensor],
    masks: Optional[Tensor],
    *lists: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """[..., N, D] or packed [nnz, D] Gaussians -> colors [..., H, W, D], alphas [..., H, W, 1], last_ids [..., H, W] int32.

    Args:
        lists: the fields of `Grid`.
    """
    grid = Grid(*lists)
    features = torch.cat([colors.flatten(0, -2), torch.ones_like(opacities).reshape(-1, 1)], dim=1)
    with full_precision(means2d.device):
        cells, scene = _scene(grid, means2d, conics, features, opacities, masks)
        last = cells.pixel.new_zeros(cells.pixel.shape)

        def note(chosen: Tensor, state: Alpha, weights: Tensor) -> None:
            rank = torch.arange(1, len(weights) + 1, dtype=torch.uint8, device=last.device)
            latest = ((weights > 0) * rank[:, None]).amax(0).view(-1, AREA).to(torch.int64)
            pair = cells.pairs.start.index_select(0, chosen)[:, None] + state.first + latest - 1
            isect = cells.isect[pair.clamp_min(0)]
            last.index_copy_(0, chosen, torch.where(latest > 0, isect, last.index_select(0, chosen)))

        sums, chunks = blend(scene, features.shape[1], chunk_cells(_BUDGET, colors), True, note)
    image = to_pixels(grid, cells, sums)
    alphas = image[..., -1:].contiguous()
    rendered = image[..., :-1]
    if backgrounds is not None:
        rendered = rendered + (1.0 - alphas) * backgrounds[..., None, None, :]
    last_ids = to_pixels(grid, cells, last[:, None])[..., 0].to(torch.int32)
    # the backward pass begins with them; they live as long as gsplat keeps `last_ids` for it
    setattr(last_ids, _PLAN, (cells, scene, chunks))
    return rendered.contiguous(), alphas, last_ids


@served
def rasterize_to_pixels_3dgs_bwd(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    backgrounds: Optional[Tensor],
    masks: Optional[Tensor],
    *others: Any,
) -> tuple[Optional[Tensor], ...]:
    """Absolute gradients of means2d (None without absgrad), and gradients of means2d, conics, colors, opacities.

    Args:
        others: the fields of `Grid`, render_alphas, last_ids, gradients of colors and alphas, absgrad.
    """
    *lists, _, last_ids, v_render_colors, v_render_alphas, absgrad = others
    grid = Grid(*lists)
    with full_precision(means2d.device):
        plan = getattr(last_ids, _PLAN, None)
        if plan is None:  # they are a copy of what the forward pass gave
            features = torch.cat([colors.flatten(0, -2), torch.ones_like(opacities).reshape(-1, 1)], dim=1)
            cells, scene = _scene(grid, means2d, conics, features, opacities, masks)
            plan = cells, scene, blend(scene, features.shape[1], chunk_cells(_BUDGET, colors), True)[1]
        cells, scene, chunks = plan
        upstream = to_cells(cells, torch.cat([v_render_colors, v_render_alphas.to(v_render_colors)], dim=-1))
        behind = upstream.new_zeros(upstream.shape[0], AREA)
        if backgrounds is not None:
            color = backgrounds.reshape(-1, colors.shape[-1]).index_select(0, cells.image)
            behind = (upstream[:, :-1] * color[:, :, None]).sum(1)
        pulled = blend_backward(scene, chunks, upstream, behind, with_absolute=absgrad)
    conic = conics.reshape(-1, 3).t().to(pulled.moments.dtype)
    total, mx, my, mxx, mxy, myy = pulled.moments.unbind(0)
    v_means2d = torch.stack([-(conic[0] * mx + conic[1] * my), -(conic[2] * my + conic[1] * mx)], dim=1)
    v_conics = torch.stack([-0.5 * mxx, -mxy, -0.5 * myy], dim=1)
    opacity = opacities.reshape(-1).to(total.dtype)
    v_opacities = torch.where(total != 0, total / opacity, torch.zeros_like(total))
    v_absolute = (
        None if pulled.absolute is None else pulled.absolute.t().to(means2d.dtype).reshape(means2d.shape)
    )
    return (
        v_absolute,
        v_means2d.to(means2d.dtype).view(means2d.shape),
        v_conics.to(conics.dtype).view(conics.shape),
        pulled.features[:-1].t().reshape(colors.shape),
        v_opacities.to(opacities.dtype).view(opacities.shape),
    )


@served
def rasterize_to_indices_3dgs(
    range_start: int,
    range_end: int,
    transmittances: Tensor,
    means2d: Tensor,
    conics: Tensor,
    opacities: Tensor,
    *lists: Any,
) -> tuple[Tensor, Tensor]:
    """Which Gaussian [M] int64 (of its image) is blended in which pixel [M] int64 (image H W + row W + column), front to back.

    The range counts batches of tile_size^2 pairs of a tile.
    """
    grid = Grid(*lists)
    count = means2d.shape[-2]
    batch = grid.tile_size**2
    gaussians: List[Tensor] = []
    pixels: List[Tensor] = []
    with full_precision(means2d.device):
        blank = opacities.new_zeros(opacities.numel(), 0)
        reached = (range_start * batch, range_end * batch)
        cells, scene = _scene(grid, means2d, conics, blank, opacities, None, reached)
        ahead = to_cells(cells, transmittances[..., None])[:, 0]

        def note(chosen: Tensor, state: Alpha, weights: Tensor) -> None:
            rank, place = (weights > 0).nonzero().unbind(1)
            cell = torch.div(place, AREA, rounding_mode="floor")
            pixel = cells.pixel.index_select(0, chosen).view(-1).index_select(0, place)
            inside = (pixel < grid.pixels).nonzero().view(-1)
            gaussians.append(state.rows.index_select(0, (rank * len(chosen) + cell).index_select(0, inside)))
            pixels.append(pixel.index_select(0, inside))

        blend(scene, 0, chunk_cells(_BUDGET, means2d), False, note, ahead)
    if not pixels:
        nothing = grid.flatten_ids[:0].to(torch.int64)
        return nothing, nothing
    pixel, order = torch.sort(torch.cat(pixels), stable=True)
    return torch.cat(gaussians).index_select(0, order) % count, pixel
