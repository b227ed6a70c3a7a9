"""Differentiable rasterizer of surfels (2D Gaussian Splatting) in plain PyTorch, with the results of `diff_surfel_rasterization`.

Contract (Huang et al. 2024, "2D Gaussian Splatting for Geometrically Accurate Radiance Fields"; hbb1/diff-surfel-rasterization)
--------------------------------------------------------------------------------------------------------------------------------
Surfel       a disc with the axes L0 = mod s0 R e0 and L1 = mod s1 R e1 about its center; R from the normalized quaternion
             (w, x, y, z). T = [L0 0; L1 0; center 1] times world-to-pixel: its columns Tu, Tv, Tw map (u, v, 1) of the disc
             to (x w, y w, w), pixel centers at integers. `transforms` hold Tu, Tv, Tw instead.
Pixel        the ray of (x, y) meets the disc at s = p.xy / p.z, p = (x Tw - Tu) x (y Tw - Tv), at the depth
             s . Tw.xy + Tw.z, which is det T / p.z; rho = min(|s|^2, 2 |center2D - (x, y)|^2), the second term being the
             low-pass; alpha = min(0.99, opacity e^(-rho / 2)). Skipped where p.z = 0, depth < 0.2 or alpha < 1/255; a pixel
             stops before its transmittance falls below 1e-4.
Extent       center2D and half sides h are those of the box around the disc's ellipse at 3 sigma, h^2 at least 1e-4;
             radius = ceil(max(h, 3 * 0.707106)); a surfel reaches the 16x16-pixel tiles that the square of that radius
             touches. Culled where view depth <= 0.2, where the ray to the center lies in the disc's plane, and where the
             box has no size.
Maps         `allmap` [7, H, W] holds, with w = alpha times transmittance: sum w depth; sum w; sum w n (three; in view
             space, n turned towards the camera; (0, 0, -1) with `transforms`); the depth of the last surfel met while the
             transmittance is above 0.5; and the distortion, the sum over i > j of w_i w_j (m_i - m_j)^2 with
             m = 100 / 99.8 (1 - 0.2 / depth). Nothing is divided by alpha.
Order        by view depth of the centers in the precision of the input, ties by index.
Gradients    the derivative of all that, by autograd, with two conventions of the CUDA kernel: the 0.99 cap passes the
             gradient straight through; where the low-pass decides, s is a constant in the depth. `means2D` takes no part: its
             gradient is (dL/dTu.z W / 2, dL/dTv.z H / 2, 0) times Tw.z, the densification statistic, in which the low-pass
             has no part unless `transforms` are given. What comes back for a pixel that meets no surfel is not read, be it NaN.
             No gradient to background or camera.

Deviations: the gradient has the factor `scale_modifier`, no radial part of a quaternion, and the image's own size (the CUDA
kernel leaves the first out, does not differentiate its normalization, and takes int(2 focal tan) for the size, which is a
pixel short at some fields of view); no surfels give the background (CUDA: black); a surfel
with a NaN or an infinity is skipped, with radius 0 and zero gradient.

Algorithm
---------
p is linear in the pixel: three numbers for each of its components, relative to the center of an 8x8 tile and of largest entry
1, which float32 can hold. Pairs (surfel, tile) come from boxes at alpha = 1/255 inside the tile rectangle, and are sorted by
tile. A chunk of tiles goes front to back in blocks of 32 surfels; each block is a checkpoint, computed again in the backward
pass, so that memory is bounded by one block, and one state (transmittance and sums) for each.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from splatfix.kernels.binning import AREA, BIN, TILE, Pairs, arange_per_row, bins_of, sorted_by_tile, to_image
from splatfix.kernels.blending import DEPTH_BLOCK, full_precision, untraced
from splatfix.kernels.projection import (
    NEAR,
    GaussianRasterizationSettings,
    Gaussians,
    colors_of,
    geometry_dtype,
    rotation_matrices,
    with_gradient_of,
)
from splatfix.kernels.rasterizer import check_inputs, refuse_values
from splatfix.kernels.scene import ALPHA_CAP, ALPHA_MIN, STOP, non_finite_rows

__all__ = ["SurfelImages", "rasterize_surfels"]

_FAR = 100.0  # with NEAR, the depths that the distortion maps to [0, 1]
_CUTOFF = 3.0  # sigma
_LOW_PASS = 0.707106  # pixels; the low-pass multiplies squared distances by its inverse square, 2
_CELLS = 1 << 17  # pixel-pairs of a block; each costs some 40 numbers while its gradient is computed


class SurfelImages(NamedTuple):
    """The result of `rasterize_surfels`; `color` and `allmap` are differentiable.

    Attributes:
        color: [C, H, W], background included.
        radii: [P] int32, pixels; 0 where culled.
        allmap: [7, H, W]: depth, alpha, normal (3), median depth, distortion, see the module's text.
    """

    color: Tensor
    radii: Tensor
    allmap: Tensor


class _Discs(NamedTuple):
    """Projected surfels, in the precision of the geometry."""

    transform: Tensor  # [P, 3, 3]: columns Tu, Tv, Tw
    normal: Tensor  # [P, 3], view space, towards the camera
    facing: Tensor  # [P], 0 where the view ray lies in the plane
    depth: Tensor  # [P], view space


class _Statistic(torch.autograd.Function):
    """The transform as it is; its gradient also becomes that of `means2D`, the densification statistic."""

    @staticmethod
    def forward(ctx: Any, transform: Tensor, means2D: Tensor, width: int, height: int) -> Tensor:
        ctx.half = (0.5 * width, 0.5 * height)
        ctx.save_for_backward(transform[:, 2, 2])
        ctx.like = (means2D.shape, means2D.dtype)
        return transform.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (depth,) = ctx.saved_tensors
        shape, dtype = ctx.like
        screen = gradient.new_zeros(shape)
        screen[:, 0] = gradient[:, 2, 0] * depth * ctx.half[0]
        screen[:, 1] = gradient[:, 2, 1] * depth * ctx.half[1]
        return gradient, screen.to(dtype), None, None


def _discs(settings: GaussianRasterizationSettings, given: Gaussians) -> _Discs:
    means, scales, rotations, transforms = given.means3D, given.scales, given.rotations, given.shapes
    geometry = geometry_dtype(means)
    view = settings.viewmatrix.detach().to(device=means.device, dtype=geometry)
    center = means.to(geometry)
    in_view = center @ view[:3, :3] + view[3, :3]
    if transforms is not None:
        transform = transforms.to(geometry).view(-1, 3, 3).transpose(1, 2)
        normal = torch.zeros_like(in_view)
        normal[:, 2] = 1.0
    else:
        assert scales is not None and rotations is not None
        clip = settings.projmatrix.detach().to(device=means.device, dtype=geometry)
        width, height = int(settings.image_width), int(settings.image_height)
        across = 0.5 * width * clip[:, 0] + 0.5 * (width - 1) * clip[:, 3]
        down = 0.5 * height * clip[:, 1] + 0.5 * (height - 1) * clip[:, 3]
        to_pixel = torch.stack([across, down, clip[:, 3]], dim=1)  # [4, 3]
        unit = torch.nn.functional.normalize(rotations.to(geometry), dim=1, eps=0.0)
        axes = rotation_matrices(unit.t()).permute(2, 1, 0)  # [P, axis, xyz]
        lengths = float(settings.scale_modifier) * scales.to(geometry)
        rows = [axes[:, 0] * lengths[:, :1] @ to_pixel[:3], axes[:, 1] * lengths[:, 1:] @ to_pixel[:3]]
        transform = torch.stack([*rows, center @ to_pixel[:3] + to_pixel[3]], dim=1)
        normal = axes[:, 2] @ view[:3, :3]
    facing = -(in_view * normal).sum(1).detach()
    return _Discs(transform, torch.where(facing[:, None] > 0, normal, -normal), facing, in_view[:, 2])


def disc_box(transform: Tensor, level: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Center [P, 2], squared half sides [P, 2] of the box around the ellipse |s|^2 = level, and its denominator [P].

    The denominator is below 0 where the whole ellipse lies in front of the camera; above, the box means nothing.
    """
    across, last = transform[:, :, :2], transform[:, :, 2:]
    signs = torch.ones_like(transform[:, :, 0]) * level
    signs = torch.cat([signs[:, :2], -torch.ones_like(signs[:, :1])], dim=1)[:, :, None]
    denominator = (signs * last * last).sum(1)
    weights = signs / denominator[:, None]
    center = (weights * across * last).sum(1)
    return center, center * center - (weights * across * across).sum(1), denominator[:, 0]


class _Reached(NamedTuple):
    """Footprints: radius [P] int32 (0 = culled) and the 8x8 tiles reached, half open, [P] int64."""

    radius: Tensor
    left: Tensor
    right: Tensor
    top: Tensor
    bottom: Tensor


def _reached(
    settings: GaussianRasterizationSettings, discs: _Discs, opacity: Tensor, precision: Any
) -> _Reached:
    """The rectangle of 16x16 tiles of the CUDA kernel, cut down to where alpha can reach 1/255."""
    width, height = int(settings.image_width), int(settings.image_height)
    center, squares, denominator = disc_box(discs.transform, _CUTOFF**2)
    extent = torch.sqrt(squares.clamp_min(1e-4)).amax(1)
    radius = torch.ceil(extent.clamp_min(_CUTOFF * _LOW_PASS))
    sides = []
    level = (2.0 * torch.log(255.0 * opacity)).clamp_min(0.0)
    tight, tight_squares, tight_denominator = disc_box(discs.transform, level[:, None])
    known = (tight_denominator < 0) & torch.isfinite(tight_squares).all(1)
    low_pass = torch.sqrt(0.5 * level)
    for axis, edge in ((0, width), (1, height)):
        middle, half = center[:, axis], torch.sqrt(tight_squares[:, axis].clamp_min(0.0))
        first, last = bins_of(middle - radius, edge), bins_of(middle + radius + (BIN - 1), edge)
        low = torch.minimum(middle - low_pass, tight[:, axis] - half) - 1e-3
        high = torch.maximum(middle + low_pass, tight[:, axis] + half) + 1e-3
        count, ratio = (edge + TILE - 1) // TILE, BIN // TILE
        first8, last8 = first * ratio, (last * ratio).clamp_max(count)
        floor = torch.nan_to_num(low / TILE).clamp(0, count).to(torch.int64)
        ceiling = torch.nan_to_num(torch.floor(high / TILE)).clamp(-1, count).to(torch.int64) + 1
        sides.append((first, last))
        sides.append(
            (
                torch.where(known, torch.maximum(first8, floor), first8),
                torch.where(known, torch.minimum(last8, ceiling), last8),
            )
        )
    (left16, right16), across, (top16, bottom16), down = sides
    visible = (
        (discs.depth.to(precision) > NEAR)
        & (discs.facing != 0)
        & (denominator != 0)
        & torch.isfinite(center.sum(1) + radius)
        & ((right16 - left16) * (bottom16 - top16) > 0)
    )
    radius = torch.where(visible, radius, torch.zeros_like(radius)).clamp_max(2147483520.0)
    return _Reached(radius.to(torch.int32), *across, *down)


def _list(settings: GaussianRasterizationSettings, reached: _Reached) -> Pairs:
    """(surfel, 8x8 tile) pairs."""
    tiles_x = (int(settings.image_width) + TILE - 1) // TILE
    tiles_y = (int(settings.image_height) + TILE - 1) // TILE
    across = (reached.right - reached.left).clamp_min(0)
    owner, start = arange_per_row(across * (reached.bottom - reached.top).clamp_min(0))
    rank = torch.arange(owner.numel(), device=owner.device) - start.index_select(0, owner)
    columns = across.index_select(0, owner)
    row = reached.top.index_select(0, owner) + torch.div(rank, columns, rounding_mode="floor")
    tile = row * tiles_x + reached.left.index_select(0, owner) + rank % columns
    return sorted_by_tile(owner, tile, tiles_x * tiles_y)


# ---------------------------------------------------------------------------------------------------------------------
# Blending
# ---------------------------------------------------------------------------------------------------------------------


class _State(NamedTuple):
    """Where the pixels of some tiles are, each [G, 64] but the sums."""

    through: Tensor  # transmittance; 0 where stopped
    first: Tensor  # sum of w m
    second: Tensor  # sum of w m^2
    median: Tensor
    sums: Tensor  # [G, F + 2, 64]: sums of w times features, of w times depth, and the distortion


def _table(
    discs: _Discs, means2D: Optional[Tensor], settings: GaussianRasterizationSettings, given: bool
) -> Tensor:
    """[V + 1, 15]: p's coefficients of 1, x, y (nine), det T, center2D, Tw; the last row is padding.

    The first ten are divided by the largest of p at the center and p's slopes, to which s and depth are indifferent.
    """
    size = int(settings.image_width), int(settings.image_height)
    traced: Any = _Statistic.apply
    transform = traced(discs.transform, means2D, *size)
    tu, tv, tw = transform.unbind(2)
    center = disc_box(transform if given else discs.transform, _CUTOFF**2)[0]
    constant = torch.linalg.cross(tu, tv)
    slope_x, slope_y = torch.linalg.cross(tv, tw), torch.linalg.cross(tw, tu)
    at_center = constant + center[:, :1] * slope_x + center[:, 1:] * slope_y
    largest = torch.stack([at_center, slope_x, slope_y]).detach().abs().amax((0, 2))
    unit = 1.0 / largest.clamp_min(torch.finfo(largest.dtype).tiny)[:, None]
    rows = [
        constant * unit,
        slope_x * unit,
        slope_y * unit,
        (constant * tw).sum(1, keepdim=True) * unit,
        center,
        tw,
    ]
    table = torch.cat(rows, dim=1)
    return torch.cat([table, table.new_zeros(1, table.shape[1])])


def _block(
    table: Tensor,
    features: Tensor,
    opacity: Tensor,
    rows: Tensor,
    tile_center: Tensor,
    middle: Tensor,
    pixels: Tensor,
    *state: Tensor,
) -> tuple[Tensor, ...]:
    """One block of surfels in front of what follows: [G, K] rows of the tables over tiles with centers [G, 2] -> `_State`.

    `middle` [G] is a depth among the tile's surfels.
    """
    before = _State(*state)
    groups, depth = rows.shape
    flat, dtype = rows.reshape(-1), features.dtype
    one = table.index_select(0, flat).view(groups, depth, -1)
    x, y = tile_center[:, None, :1], tile_center[:, None, 1:]
    constant = one[..., :3] + x * one[..., 3:6] + y * one[..., 6:9]
    u, v = pixels

    def over_pixels(value: Tensor) -> Tensor:
        return value.to(dtype)[..., None]

    linear = torch.stack([constant, one[..., 3:6], one[..., 6:9]], dim=-1).permute(
        2, 0, 1, 3
    )  # [xyz, G, K, 3]
    p_x, p_y, p_z = torch.matmul(linear.to(dtype), torch.stack([torch.ones_like(u), u, v])).unbind(0)
    across = over_pixels(one[..., 10] - x[..., 0]) - u
    down = over_pixels(one[..., 11] - y[..., 0]) - v
    low_pass = 2.0 * (across * across + down * down)
    decided = p_x * p_x + p_y * p_y <= low_pass * p_z * p_z  # the disc, not the low-pass

    # where p_z is as good as 0, its inverse would spoil the gradients of what is not even drawn
    smallest = 1e-12 if dtype == torch.float32 else 1e-60
    drawn = p_z.detach().abs() > smallest
    inverse = 1.0 / torch.where(drawn, p_z, torch.ones_like(p_z))
    det = over_pixels(one[..., 9])
    with torch.no_grad():
        far = det * inverse
        drawn &= (far >= NEAR) & torch.isfinite(far)
        held = drawn & ~decided
        s_x, s_y = (torch.where(held, p * inverse, torch.zeros_like(p)) for p in (p_x, p_y))
    inverse = torch.where(drawn & decided, inverse, torch.zeros_like(inverse))
    along = s_x * over_pixels(one[..., 12]) + s_y * over_pixels(one[..., 13]) + over_pixels(one[..., 14])
    far = torch.where(decided, det * inverse, with_gradient_of(along, far))
    far = torch.where(drawn, far, torch.ones_like(far))

    rho = torch.where(decided, (p_x * inverse) ** 2 + (p_y * inverse) ** 2, low_pass)
    alpha = opacity.index_select(0, flat).view(groups, depth, 1) * torch.exp(-0.5 * rho)
    alpha = with_gradient_of(alpha, alpha.clamp_max(ALPHA_CAP))
    alpha = torch.where(drawn & (alpha >= ALPHA_MIN), alpha, torch.zeros_like(alpha))

    after = torch.cumprod(1.0 - alpha, dim=1) * before.through[:, None]
    ahead = torch.cat([before.through[:, None], after[:, :-1]], dim=1)
    weight = torch.where(after >= STOP, alpha * ahead, torch.zeros_like(alpha))

    # m less a number of the tile: only differences of m count, and in float32 those of m itself would be lost
    placed = _FAR / (_FAR - NEAR) * NEAR * (1.0 / middle[:, None, None] - 1.0 / far)
    first, second = weight * placed, weight * placed * placed
    first_ahead = before.first[:, None] + torch.cumsum(first, 1) - first
    second_ahead = before.second[:, None] + torch.cumsum(second, 1) - second
    distortion = weight * (placed * placed * (1.0 - ahead) + second_ahead - 2.0 * placed * first_ahead)
    rank = torch.arange(depth, device=rows.device)[None, :, None]
    last = torch.where((weight > 0) & (ahead > 0.5), rank, torch.full_like(rank, -1)).amax(1)
    median = far.gather(1, last.clamp_min(0)[:, None])[:, 0]

    of_features = torch.bmm(features.index_select(0, flat).view(groups, depth, -1).transpose(1, 2), weight)
    own = torch.stack([(weight * far).sum(1), distortion.sum(1)], dim=1)
    end = after[:, -1]
    return (
        torch.where(end >= STOP, end, torch.zeros_like(end)),
        before.first + first.sum(1),
        before.second + second.sum(1),
        torch.where(last >= 0, median, before.median),
        before.sums + torch.cat([of_features, own], dim=1),
    )


def _blend(
    table: Tensor, features: Tensor, opacity: Tensor, lists: Pairs, tiles_x: int
) -> tuple[Tensor, Tensor]:
    """Front to back: [N, F + 2, 64] sums and [N, 64] median depth of the tiles in `lists`."""
    steps = torch.arange(TILE, device=table.device).to(features.dtype) - 0.5 * (TILE - 1)
    v, u = torch.meshgrid(steps, steps, indexing="ij")
    pixels = torch.stack([u.reshape(-1), v.reshape(-1)])
    column, row = lists.tile % tiles_x, torch.div(lists.tile, tiles_x, rounding_mode="floor")
    centers = torch.stack([column, row], dim=1).to(table.dtype) * TILE + 0.5 * (TILE - 1)
    grad = torch.is_grad_enabled() and (
        table.requires_grad or features.requires_grad or opacity.requires_grad
    )
    padding = table.shape[0] - 1
    sums, medians = [], []
    per_chunk = max(1, _CELLS // (DEPTH_BLOCK * AREA))
    for at in range(0, lists.tile.numel(), per_chunk):
        chosen = slice(at, at + per_chunk)
        start, length = lists.start[chosen], lists.length[chosen]
        groups, longest = start.numel(), int(length[0])
        among = lists.gaussian.index_select(0, start + torch.div(length, 2, rounding_mode="floor"))
        middle = table[:, 14].detach().index_select(0, among).clamp_min(NEAR).to(features.dtype)
        zero = features.new_zeros(groups, AREA)
        state = _State(zero + 1.0, zero, zero, zero, features.new_zeros(groups, features.shape[1] + 2, AREA))
        for first in range(0, longest, DEPTH_BLOCK):
            rank = torch.arange(first, min(first + DEPTH_BLOCK, longest), device=table.device)[None]
            pair = (start[:, None] + rank).clamp_max(lists.gaussian.numel() - 1)
            rows = lists.gaussian.index_select(0, pair.view(-1)).view_as(pair)
            rows = rows.masked_fill(rank >= length[:, None], padding)
            arguments = (table, features, opacity, rows, centers[chosen], middle, pixels, *state)
            if grad:
                after = checkpoint(_block, *arguments, use_reentrant=False, preserve_rng_state=False)
            else:
                after = _block(*arguments)
            state = _State(*after)
            if not bool((state.through > 0).any()):
                break
        sums.append(state.sums)
        medians.append(state.median)
    if not sums:
        return features.new_zeros(0, features.shape[1] + 2, AREA), features.new_zeros(0, AREA)
    return torch.cat(sums), torch.cat(medians)


def _by_cuda_kernels(settings: GaussianRasterizationSettings, given: Gaussians) -> Optional[SurfelImages]:
    """The same by CUDA kernels, where they lie beside this file and serve these settings and tensors; else None."""
    if not given.means3D.is_cuda:
        return None
    try:
        from splatfix.kernels.nvrtc import by_kernels
        from splatfix.kernels.surfels_cuda import rasterize as draw
        from splatfix.kernels.surfels_cuda import refusal
    except ImportError:  # a copy without them
        return None
    drawn = by_kernels("surfels", given.means3D, lambda: draw(settings, *given), lambda: refusal(settings))
    if drawn is None:
        return None
    return SurfelImages(*drawn)


@untraced
def rasterize_surfels(
    settings: GaussianRasterizationSettings,
    means3D: Tensor,
    means2D: Optional[Tensor],
    opacities: Tensor,
    shs: Optional[Tensor] = None,
    colors_precomp: Optional[Tensor] = None,
    scales: Optional[Tensor] = None,
    rotations: Optional[Tensor] = None,
    transforms: Optional[Tensor] = None,
) -> SurfelImages:
    """Render surfels: color, and maps of depth, alpha, normal, median depth and distortion.

    Args:
        settings: camera; of the options, those of v1. `upstream_gradients` changes nothing.
        means3D: [P, 3] world positions, float32 or float64; every other tensor has the same dtype and device.
        means2D: [P, 3] (or [P, 2]) leaf that only receives the densification statistic, or None.
        opacities: [P, 1] or [P], after the sigmoid.
        shs: [P, M, 3] SH coefficients, M >= (sh_degree + 1)^2; or
        colors_precomp: [P, C] colors, with a background of C numbers.
        scales, rotations: [P, 2] after exp, [P, 4] quaternions (w, x, y, z); or
        transforms: [P, 9], Tu, Tv and Tw in pixels (the original's `cov3D_precomp`).

    Raises:
        ValueError, TypeError: conflicting arguments or other shapes, options of other variants, non-finite inputs with `debug`.
        RuntimeError: with `prefiltered`, a surfel behind the near plane.
    """
    given = Gaussians(means3D, means2D, opacities, shs, colors_precomp, scales, rotations, transforms)
    check_inputs(settings, given, sizes=(2, 9))
    if settings.antialiasing or any(
        item is not None for item in (settings.kernel_size, settings.subpixel_offset, settings.compact_box)
    ):
        raise ValueError("Surfels know no antialiasing, kernel_size, subpixel_offset or compact_box.")
    refuse_values(settings, given)
    if means2D is None:
        given = given._replace(means2D=means3D.new_zeros(means3D.shape))
    on_gpu = _by_cuda_kernels(settings, given)
    if on_gpu is not None:
        return on_gpu
    broken = non_finite_rows(given)
    width, height = int(settings.image_width), int(settings.image_height)
    tiles = ((height + TILE - 1) // TILE, (width + TILE - 1) // TILE)
    with full_precision(means3D.device):
        with torch.no_grad():
            discs = _discs(settings, given)
            opacity = opacities.to(discs.depth.dtype).reshape(-1)
            reached = _reached(settings, discs, opacity, means3D.dtype)
            if broken is not None:
                reached.radius[broken] = 0
            index = ((reached.radius > 0) & (opacity >= ALPHA_MIN * (1 - 1e-6))).nonzero().view(-1)
            depth = discs.depth.index_select(0, index).to(means3D.dtype)
            order = index.index_select(0, torch.sort(depth, stable=True)[1])
            lists = _list(settings, _Reached(*(field.index_select(0, order) for field in reached)))

        shown = given.rows(order)
        discs = _discs(settings, shown)
        table = _table(discs, shown.means2D, settings, given=transforms is not None)
        colors, alpha = colors_of(settings, shown), shown.opacities
        features = torch.cat([colors, discs.normal.to(colors.dtype), torch.ones_like(colors[:, :1])], dim=1)
        features = torch.cat([features, features.new_zeros(1, features.shape[1])])
        alpha = torch.cat([alpha.reshape(-1), alpha.new_zeros(1)])
        sums, median = _blend(table, features, alpha, lists, tiles[1])

        count = colors.shape[1]
        image = to_image(torch.cat([sums, median[:, None]], dim=1), tiles, lists.tile, height, width)
        # nothing seen: the images still have a gradient, which is 0
        image = image + 0.0 * (table.sum().to(image.dtype) + features.sum() + alpha.sum())
        # 2DGS divides depth by alpha: 0 / 0 where nothing is met, with a gradient of NaN, which the CUDA kernel never reads
        image = torch.where(image.detach()[count + 3] > 0, image, image.detach())
        normal, opaque = image[count : count + 3], image[count + 3 : count + 4]
        depths, distortion, middle = (
            image[count + 4 : count + 5],
            image[count + 5 : count + 6],
            image[count + 6 :],
        )
        background = settings.bg.detach().to(means3D).reshape(-1, 1, 1)
        color = image[:count] + (1.0 - opaque) * background
        allmap = torch.cat([depths, opaque, normal, middle, distortion])
    return SurfelImages(color, reached.radius, allmap)
