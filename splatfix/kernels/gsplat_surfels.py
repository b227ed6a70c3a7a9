"""From surfels in the image to pixels, for `gsplat_csrc.py`, where the rules are told."""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from splatfix.kernels.binning import AREA
from splatfix.kernels.blending import DEPTH_BLOCK, full_precision
from splatfix.kernels.gsplat_dispatch import gradients, served
from splatfix.kernels.gsplat_rasterizer import ALPHA_CAP, STOP
from splatfix.kernels.gsplat_tiles import Cells, Grid, cells_of, pixel_offsets, to_cells, to_pixels
from splatfix.kernels.projection import geometry_dtype
from splatfix.kernels.scene import ALPHA_MIN
from splatfix.kernels.surfels import disc_box

_CELLS = 1 << 17  # pairs of a surfel and a pixel in a block


class _Surfels(NamedTuple):
    """What is drawn, [V, ...]."""

    lines: Tensor  # [V, 11] `_lines`, in the precision of the geometry
    opacities: Tensor  # [V]
    features: Tensor  # [V, F], the depth, the normal and 1 last


class _State(NamedTuple):
    """Where the pixels of some cells are, [G, 64] each. Only the first three are differentiable."""

    through: Tensor  # transmittance; 0 where stopped
    depths: Tensor  # sum of w d
    median: Tensor
    last: Tensor  # int64, place in flatten_ids of the last surfel
    middle: Tensor  # int64, and of that of the median


class _Block(NamedTuple):
    """What a block of depth adds."""

    state: _State
    sums: Tensor  # [G, F + 1, 64]: of w times features, and the distortion
    weight: Tensor  # [G, K, 64]
    rows: Tensor  # [G, K] of the tables


def _features(colors: Tensor, normals: Tensor) -> Tensor:
    """[V, D + 4]: colors, normals, 1."""
    flat = colors.reshape(-1, colors.shape[-1])
    return torch.cat([flat, normals.reshape(-1, 3), torch.ones_like(flat[:, :1])], dim=1)


def _lines(means2d: Tensor, ray_transforms: Tensor) -> Tensor:
    """[V, 11]: where the ray of the pixel (x, y) meets the disc, as coefficients of 1, x, y (three each), and the center.

    The nine are divided by the largest of them near the center, to which the meeting point is indifferent.
    """
    geometry = geometry_dtype(means2d)
    center = means2d.reshape(-1, 2).to(geometry)
    tu, tv, tw = ray_transforms.reshape(-1, 3, 3).to(geometry).unbind(1)
    constant = torch.linalg.cross(tu, tv)
    slope_x, slope_y = torch.linalg.cross(tv, tw), torch.linalg.cross(tw, tu)
    at_center = constant + center[:, :1] * slope_x + center[:, 1:] * slope_y
    largest = torch.stack([at_center, slope_x, slope_y]).detach().abs().amax((0, 2))
    unit = 1.0 / largest.clamp_min(torch.finfo(geometry).tiny)[:, None]
    return torch.cat([constant * unit, slope_x * unit, slope_y * unit, center], dim=1)


def _cells(
    grid: Grid,
    means2d: Tensor,
    ray_transforms: Tensor,
    opacities: Tensor,
    masks: Optional[Tensor],
    ranks: Optional[Tuple[int, int]] = None,
) -> Cells:
    """Without the pairs whose box around alpha >= 1/255 misses the cell."""
    geometry = geometry_dtype(means2d)
    level = (2.0 * torch.log(opacities.reshape(-1).to(geometry) / ALPHA_MIN)).clamp_min(0.0)
    transform = ray_transforms.reshape(-1, 3, 3).to(geometry).transpose(1, 2)
    middle, squares, denominator = disc_box(transform, level[:, None])
    half = torch.sqrt(squares.clamp_min(0.0))
    center, low_pass = means2d.reshape(-1, 2).to(geometry), torch.sqrt(0.5 * level)[:, None]
    low = torch.minimum(middle - half, center - low_pass) - 1e-3
    high = torch.maximum(middle + half, center + low_pass) + 1e-3
    # else the disc reaches behind the camera, and the box means nothing
    known = (denominator < 0) & torch.isfinite(low + high).all(1)

    def reaches(gaussian: Tensor, first: Tensor, last: Tensor) -> Tensor:
        within = low.index_select(0, gaussian)[:, None] <= last
        within &= high.index_select(0, gaussian)[:, None] >= first
        return within.all(2) | ~known.index_select(0, gaussian)[:, None]

    return cells_of(grid, reaches, means2d, masks, ranks)


def _chunks(cells: Cells) -> Iterator[slice]:
    """Cells to work on at a time."""
    step = max(1, _CELLS // (DEPTH_BLOCK * AREA))
    for at in range(0, len(cells.pixel), step):
        yield slice(at, min(at + step, len(cells.pixel)))


def _rows(cells: Cells, chunk: slice, first: int) -> Tuple[Tensor, Tensor]:
    """The surfels [G, K] of a block, and which of them are there at all."""
    start, length = cells.pairs.start[chunk], cells.pairs.length[chunk]
    rank = torch.arange(first, min(first + DEPTH_BLOCK, int(length[0])), device=start.device)[None]
    pair = (start[:, None] + rank).clamp_max(cells.isect.numel() - 1)
    rows = cells.pairs.gaussian.index_select(0, pair.view(-1)).to(torch.int64)
    return rows.view_as(pair), rank < length[:, None]


def _begin(cells: Cells, chunk: slice, like: Tensor, ahead: Optional[Tensor]) -> _State:
    zero = like.new_zeros(chunk.stop - chunk.start, AREA)
    nothing = torch.zeros_like(cells.pixel[chunk])
    return _State(zero + 1.0 if ahead is None else ahead, zero, zero, nothing, nothing)


def _walk(scene: _Surfels, cells: Cells, chunk: slice, ahead: Optional[Tensor] = None) -> Iterator[_Block]:
    state = _begin(cells, chunk, scene.features, ahead)
    for first in range(0, int(cells.pairs.length[chunk][0]), DEPTH_BLOCK):
        rows, there = _rows(cells, chunk, first)
        taken = [field.index_select(0, rows.view(-1)) for field in scene]
        block = _block(cells, chunk, first, rows, there, taken, state, None)
        state = block.state
        yield block
        if not bool((state.through > 0).any()):
            return


def _walk_back(
    scene: _Surfels,
    cells: Cells,
    chunk: slice,
    upstream: Tensor,
    totals: Sequence[Tensor],
    absolute: Optional[Tensor],
) -> None:
    """Add to the gradients of `scene`, from those [G, F + 2, 64] of the sums, distortion and median, and to the absolute ones."""
    states = [_begin(cells, chunk, scene.features, None)]
    states += [block.state for block in _walk(scene, cells, chunk)]
    v_sums, v_median = upstream[:, :-1], upstream[:, -1]
    v_state = [torch.zeros_like(v_median), torch.zeros_like(v_median), v_median]
    for number in range(len(states) - 2, -1, -1):
        before, first = states[number], number * DEPTH_BLOCK
        rows, there = _rows(cells, chunk, first)
        flat = rows.reshape(-1)
        taken = [field.index_select(0, flat) for field in scene]
        moved = before.through.new_zeros(0)
        if absolute is not None:
            moved = before.through.new_zeros(2, *rows.shape, AREA)

        def step(*leaves: Tensor) -> List[Tensor]:
            state = before._replace(through=leaves[4], depths=leaves[5], median=leaves[6])  # noqa: B023
            moves = None if absolute is None else leaves[3]
            block = _block(cells, chunk, first, rows, there, leaves[:3], state, moves)  # noqa: B023
            return [block.sums, *block.state[:3]]

        inputs = (*taken, moved, *before[:3])
        found = gradients(step, inputs, (v_sums, *v_state))
        for total, gradient in zip(totals, found[:3]):
            assert gradient is not None
            total.index_add_(0, flat, gradient)
        if absolute is not None and found[3] is not None:
            absolute.index_add_(0, flat, found[3].abs().sum(3).view(2, -1).t().to(absolute.dtype))
        v_state = [gradient for gradient in found[4:] if gradient is not None]


def _block(
    cells: Cells,
    chunk: slice,
    first: int,
    rows: Tensor,
    there: Tensor,
    taken: Sequence[Tensor],
    before: _State,
    moves: Optional[Tensor],
) -> _Block:
    """Blend a block in front of what follows.

    Args:
        taken: the fields of `_Surfels` of `rows` [G, K], [G K, ...].
        moves: [2, G, K, 64] zeros that are added to the distance of each pixel from each center.
    """
    lines, opacity, features = (field.view(*rows.shape, *field.shape[1:]) for field in taken)
    dtype = features.dtype
    center = cells.center[chunk]
    x, y = center[:, None, :1], center[:, None, 1:]
    u, v = pixel_offsets(features)
    constant = lines[..., :3] + x * lines[..., 3:6] + y * lines[..., 6:9]
    linear = torch.stack([constant, lines[..., 3:6], lines[..., 6:9]], dim=-1).permute(2, 0, 1, 3)
    p_x, p_y, p_z = torch.matmul(linear.to(dtype), torch.stack([torch.ones_like(u), u, v])).unbind(0)
    across = (lines[..., 9] - x[..., 0]).to(dtype)[..., None] - u
    down = (lines[..., 10] - y[..., 0]).to(dtype)[..., None] - v
    if moves is not None:
        across, down = across + moves[0], down + moves[1]
    low_pass = 2.0 * (across * across + down * down)
    drawn = (p_z != 0) & there[..., None]
    decided = drawn & (p_x * p_x + p_y * p_y <= low_pass * p_z * p_z)  # the disc, not the low-pass
    inverse = 1.0 / torch.where(decided, p_z, torch.ones_like(p_z))
    rho = torch.where(decided, (p_x * inverse) ** 2 + (p_y * inverse) ** 2, low_pass)
    alpha = (opacity[..., None] * torch.exp(-0.5 * rho)).clamp_max(ALPHA_CAP)
    alpha = torch.where(drawn & (alpha >= ALPHA_MIN), alpha, torch.zeros_like(alpha))

    after = torch.cumprod(1.0 - alpha, dim=1) * before.through[:, None]
    ahead = torch.cat([before.through[:, None], after[:, :-1]], dim=1)
    weight = torch.where(after > STOP, alpha * ahead, torch.zeros_like(alpha))

    depth = features[..., -5:-4]  # the last color
    own = weight * depth
    own_ahead = before.depths[:, None] + torch.cumsum(own, 1) - own
    distortion = 2.0 * (own * (1.0 - ahead) - weight * own_ahead)
    sums = torch.cat([torch.bmm(features.transpose(1, 2), weight), distortion.sum(1, keepdim=True)], dim=1)

    rank = torch.arange(rows.shape[1], device=rows.device)[None, :, None]
    blended = weight > 0
    last = torch.where(blended, rank, -torch.ones_like(rank)).amax(1)
    middle = torch.where(blended & (ahead > 0.5), rank, -torch.ones_like(rank)).amax(1)
    median = depth.expand_as(weight).gather(1, middle.clamp_min(0)[:, None])[:, 0]
    # the list of a cell may have ended before
    start = (cells.pairs.start[chunk][:, None] + first).clamp_max(len(cells.isect) - 1)
    end = after[:, -1]
    state = _State(
        torch.where(end > STOP, end, torch.zeros_like(end)),
        before.depths + own.sum(1),
        torch.where(middle >= 0, median, before.median),
        torch.where(last >= 0, cells.isect[start + last.clamp_min(0)], before.last),
        torch.where(middle >= 0, cells.isect[start + middle.clamp_min(0)], before.middle),
    )
    return _Block(state, sums, weight, rows)


@served
def rasterize_to_pixels_2dgs_fwd(
    means2d: Tensor,
    ray_transforms: Tensor,
    colors: Tensor,
    opacities: Tensor,
    normals: Tensor,
    backgrounds: Optional[Tensor],
    masks: Optional[Tensor],
    *lists: Any,
) -> tuple[Tensor, ...]:
    """[..., N, D] surfels -> colors [..., H, W, D], alphas [..., H, W, 1], normals [..., H, W, 3], distortion and median depth
    [..., H, W, 1], last_ids and median_ids [..., H, W] int32. The last channel of `colors` is the depth."""
    grid = Grid(*lists)
    with full_precision(means2d.device):
        cells = _cells(grid, means2d, ray_transforms, opacities, masks)
        scene = _Surfels(_lines(means2d, ray_transforms), opacities.reshape(-1), _features(colors, normals))
        zero = colors.new_zeros(len(cells.pixel), AREA)
        sums, ends = [zero[:, None].expand(-1, scene.features.shape[1] + 1, -1)[:0]], []
        for chunk in _chunks(cells):
            walked = list(_walk(scene, cells, chunk))
            sums.append(torch.stack([block.sums for block in walked]).sum(0))
            ends.append(walked[-1].state)
    channels = colors.shape[-1]
    whole = torch.cat(sums)
    medians = torch.cat([zero[:0], *(end.median for end in ends)])
    image = to_pixels(grid, cells, torch.cat([whole, medians[:, None]], dim=1))
    rendered, normal, alphas, distort, median = torch.split(image, [channels, 3, 1, 1, 1], dim=-1)
    if backgrounds is not None:
        rendered = rendered + (1.0 - alphas) * backgrounds[..., None, None, :]
    none = cells.pixel[:0]
    ids = [torch.cat([none, *(getattr(end, name) for end in ends)]) for name in ("last", "middle")]
    last_ids, median_ids = to_pixels(grid, cells, torch.stack(ids, dim=1)).to(torch.int32).unbind(-1)
    fields = (rendered, alphas, normal, distort, median, last_ids, median_ids)
    return tuple(field.contiguous() for field in fields)


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
    *others: Any,
) -> tuple[Optional[Tensor], ...]:
    """Absolute gradients of means2d (None without absgrad), and gradients of means2d, ray_transforms, colors, opacities,
    normals, densify.

    Args:
        others: the fields of `Grid`, render_colors, render_alphas, last_ids, median_ids, gradients of colors, alphas, normals,
            distortion and median, absgrad.
    """
    *lists, v_colors, v_alphas, v_normals, v_distort, v_median, absgrad = others
    grid = Grid(*lists[:5])
    channels = colors.shape[-1]
    with full_precision(means2d.device):
        cells = _cells(grid, means2d, ray_transforms, opacities, masks)
        scene = _Surfels(_lines(means2d, ray_transforms), opacities.reshape(-1), _features(colors, normals))
        images = (v_colors, v_normals, v_alphas, v_distort, v_median)
        upstream = to_cells(cells, torch.cat([image.to(colors.dtype) for image in images], dim=-1))
        if backgrounds is not None:
            behind = backgrounds.reshape(-1, channels).index_select(0, cells.image)
            upstream[:, channels + 3] -= (upstream[:, :channels] * behind[:, :, None]).sum(1)
        totals = [torch.zeros_like(field) for field in scene]
        absolute = scene.lines.new_zeros(len(scene.lines), 2)
        for chunk in _chunks(cells):
            _walk_back(scene, cells, chunk, upstream[chunk], totals, absolute if absgrad else None)
        v_lines, v_opacities, v_features = totals
        v_means2d, v_transforms = gradients(
            lambda m, t: (_lines(m, t),), (means2d, ray_transforms), (v_lines,)
        )
    assert v_means2d is not None and v_transforms is not None
    statistic = v_transforms[..., :2, 2] * ray_transforms[..., 2, 2:]
    return (
        absolute.to(means2d.dtype).view(means2d.shape) if absgrad else None,
        v_means2d,
        v_transforms,
        v_features[:, :channels].reshape(colors.shape),
        v_opacities.view(opacities.shape),
        v_features[:, channels : channels + 3].reshape(normals.shape),
        statistic,
    )


@served
def rasterize_to_indices_2dgs(
    range_start: int,
    range_end: int,
    transmittances: Tensor,
    means2d: Tensor,
    ray_transforms: Tensor,
    opacities: Tensor,
    *lists: Any,
) -> tuple[Tensor, Tensor]:
    """As `rasterize_to_indices_3dgs`."""
    grid = Grid(*lists)
    batch = grid.tile_size**2
    gaussians, pixels = [grid.flatten_ids[:0].to(torch.int64)], [grid.flatten_ids[:0].to(torch.int64)]
    with full_precision(means2d.device):
        reached = (range_start * batch, range_end * batch)
        cells = _cells(grid, means2d, ray_transforms, opacities, None, reached)
        blank = opacities.new_zeros(opacities.numel(), 5)
        scene = _Surfels(_lines(means2d, ray_transforms), opacities.reshape(-1), blank)
        ahead = to_cells(cells, transmittances[..., None])[:, 0]
        for chunk in _chunks(cells):
            for block in _walk(scene, cells, chunk, ahead[chunk]):
                cell, rank, place = (block.weight > 0).nonzero().unbind(1)
                pixel = cells.pixel[chunk][cell, place]
                inside = (pixel < grid.pixels).nonzero().view(-1)
                gaussians.append(block.rows[cell, rank].index_select(0, inside))
                pixels.append(pixel.index_select(0, inside))
    pixel, order = torch.sort(torch.cat(pixels), stable=True)
    return torch.cat(gaussians).index_select(0, order) % means2d.shape[-2], pixel
