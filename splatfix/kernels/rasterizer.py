"""Differentiable Gaussian rasterizer in plain PyTorch, with the interface and results of `diff_gaussian_rasterization`.

Self-contained: standard library and torch >= 1.13, Python >= 3.8, float32 and float64. It is written for CPU, CUDA
and MPS tensors, and tuned on CPUs; float32 on CUDA is handed to the kernels of rasterizer_cuda.py where they can be had.

Contract (Inria v1, the EWA splatting of Kerbl et al. 2023, and the options of its family)
------------------------------------------------------------------------------------------
Projection   matrices are passed transposed (row vectors); only `z_view <= 0.2` (in float32) is culled; `1 / (w + 1e-7)`;
             quaternions (w, x, y, z) are used as given, not normalized; `t.x / t.z` is clamped to +-1.3 tan(fov / 2)
             for the Jacobian only; 0.3 is added to the diagonal of the 2D covariance; `det == 0` is skipped.
Extent       radius = ceil(3 sqrt(largest eigenvalue)); a Gaussian reaches only the 16x16-pixel tiles that the square
             of that radius touches, although the ellipse of an opaque one is a little larger. `radii` is 0 where culled.
Pixel        centers at integers; alpha = min(0.99, opacity e^power); skipped where power > 0 or alpha < 1/255;
             a pixel stops *before* the contribution that would take its transmittance below 1e-4.
Order        by depth in the precision of the input, ties by index.
antialiasing opacity times sqrt(max(2.5e-5, det / det_blurred)) (Inria 2024).
kernel_size  None is v1's 0.3. A number replaces 0.3 and, as in mip-splatting, multiplies the opacity by
             sqrt(det / (det_blurred + 1e-6) + 1e-6), both at least 1e-6, 0 where one is not above that.
subpixel_offset  [H, W, 2] (x, y), added to the pixel centers (mip-splatting).
compact_box  None is v1's square. A number m replaces it, as FastGS's `mult` does: a Gaussian reaches every pixel of the 16x16
             tiles [16 i, 16 i + 16) x [16 j, 16 j + 16) that the ellipse power = -m ln(255 opacity) touches, and no other.
Gradients    as v1: the 0.99 cap passes the gradient straight through; a color clamped at 0 gets none; where t.x (t.y)
             is clamped, x (y) gets none and z is differentiated as if the clamped value were a constant, which is what
             v1 does and not what autograd would do; the gradient through the conic is damped by det^2 / (det^2 + 1e-7).
             `means2D` takes no part in the forward pass: its gradient [:, :2] is dL/d(pixel position) times
             (W / 2, H / 2), the densification statistic; with `kernel_size` its third column holds the sum over pixels
             of |gx| + |gy| in the same units, and a `means2D` of four columns (FastGS) gets the sums of |gx| and of |gy| in
             the last two. No gradient to the background or the camera.

Deviations, all deliberate: projection runs in float64 where the device has it, so thin and distant Gaussians come out
closer to the formulas than v1's float32; sums have a fixed order on the CPU, so results repeat bit for bit; no Gaussians
at all give the background (v1: black); a Gaussian with a NaN or an infinity is skipped, with radius 0 and zero
gradient (with `debug=True` it is an error); SH bands above 3 are ignored, as in v1.

Algorithm
---------
Pairs (Gaussian, 8x8-pixel tile) are listed for the exact alpha >= 1/255 ellipse inside v1's tile rectangle, which leaves
the image unchanged, and sorted by tile. Tiles are processed in chunks of at most `budget_bytes`, a block of depth at a
time, until all their pixels have stopped. In a chunk the power is a matrix product of six coefficients per pair
with six monomials of the pixel position (relative to the tile, so that float32 is enough), color is a batched
product of weights and features, and only the running transmittance is a loop over depth. The backward pass recomputes
alpha from per-block transmittance checkpoints and walks the blocks back to front. Time is linear in the number of pairs.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
from typing import Any, Callable, Iterator, NamedTuple, Optional, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["GaussianRasterizationSettings", "GaussianRasterizer", "Rendered", "rasterize"]

_NEAR = 0.20000000298023224  # float32(0.2): view-space depth at or below which v1 drops a Gaussian
_FRUSTUM_MARGIN = 1.3  # times tan(fov / 2): clamp of t.x / t.z in the Jacobian
_BLUR = 0.3  # v1's low-pass, pixels^2
_ALPHA_CAP = 0.99
_ALPHA_MIN = 1.0 / 255.0
_STOP = 1e-4  # a pixel ends before its transmittance falls below this
_BIN = 16  # v1's tile edge: decides how far a Gaussian may reach
_TILE = 8  # our raster tile edge, divides _BIN
_AREA = _TILE * _TILE
_DEPTH_BLOCK = 32  # pairs of one tile worked on at a time; stopped tiles leave between blocks
_BUFFERS = 7  # chunk-sized buffers alive at once in the backward pass: six, and the smaller ones together
_CPU_CHUNK = 1 << 19  # more pixel-pairs in a chunk fall out of the CPU caches
_OFF = -1.0e4  # log2 of the opacity of padding: exp2 gives 0
_LOG2E = 1.0 / math.log(2.0)


class GaussianRasterizationSettings(NamedTuple):
    """One camera and the options of the rasterizer family; the first twelve fields are v1's.

    Attributes:
        image_height, image_width: pixels.
        tanfovx, tanfovy: tangents of half the field of view.
        bg: [C] background color.
        scale_modifier: factor on `scales`.
        viewmatrix, projmatrix: [4, 4] world-to-view and world-to-clip, transposed (for row vectors).
        sh_degree: active SH degree.
        campos: [3] camera center, for the SH direction.
        prefiltered: asserts that no Gaussian is behind the camera; otherwise an error, as in v1.
        debug: raise for non-finite inputs instead of skipping those Gaussians.
        antialiasing: the 2024 opacity compensation.
        kernel_size: mip-splatting's low-pass in pixels^2 with its compensation; None is v1.
        subpixel_offset: [H, W, 2] offsets of the pixel centers.
        compact_box: FastGS's factor on the squared extent that chooses tiles; None is v1's square of 3 sigma.
        upstream_gradients: the CUDA kernels' gradients also where they are not the derivative (see the module's text).
    """

    image_height: int
    image_width: int
    tanfovx: float
    tanfovy: float
    bg: Tensor
    scale_modifier: float
    viewmatrix: Tensor
    projmatrix: Tensor
    sh_degree: int
    campos: Tensor
    prefiltered: bool
    debug: bool
    antialiasing: bool = False
    kernel_size: Optional[float] = None
    subpixel_offset: Optional[Tensor] = None
    compact_box: Optional[float] = None
    upstream_gradients: bool = False


class Rendered(NamedTuple):
    """The result of `rasterize`; all but `radii` are differentiable.

    Attributes:
        color: [C, H, W], background included.
        radii: [P] int32, pixels; 0 where culled.
        invdepth: [1, H, W], sum of alpha T / z.
        alpha: [1, H, W], sum of alpha T.
        depth: [1, H, W], sum of z alpha T (not divided by alpha).
    """

    color: Tensor
    radii: Tensor
    invdepth: Tensor
    alpha: Tensor
    depth: Tensor


# ---------------------------------------------------------------------------------------------------------------------
# Projection: one Gaussian to one ellipse. Plain differentiable torch; the backward pass runs it again under autograd.
# ---------------------------------------------------------------------------------------------------------------------


class _Camera(NamedTuple):
    """The camera, in the precision of the geometry."""

    width: int
    height: int
    tan: tuple[float, float]
    rotation: Tensor  # [3, 3], row vectors: p_view = p @ rotation + translation
    translation: Tensor  # [3]
    projection: Tensor  # [4, 3], columns x, y, w of the clip matrix
    blur: float
    scale_modifier: float
    compact_box: Optional[float]


class _Ellipses(NamedTuple):
    """Projected Gaussians, each field [P] in the precision of the geometry."""

    x: Tensor  # pixel position
    y: Tensor
    z: Tensor  # view-space depth
    a: Tensor  # blurred 2D covariance [[a, b], [b, c]], pixels^2
    b: Tensor
    c: Tensor
    det: Tensor
    opacity: Tensor  # compensated


def _geometry_dtype(means: Tensor) -> torch.dtype:
    return torch.float32 if means.device.type == "mps" else torch.float64


def _camera(settings: GaussianRasterizationSettings, means: Tensor) -> _Camera:
    def put(matrix: Tensor) -> Tensor:
        return matrix.detach().to(device=means.device, dtype=_geometry_dtype(means))

    view = put(settings.viewmatrix)
    return _Camera(
        width=int(settings.image_width),
        height=int(settings.image_height),
        tan=(float(settings.tanfovx), float(settings.tanfovy)),
        rotation=view[:3, :3],
        translation=view[3, :3],
        projection=put(settings.projmatrix)[:, (0, 1, 3)],
        blur=_BLUR if settings.kernel_size is None else float(settings.kernel_size),
        scale_modifier=float(settings.scale_modifier),
        compact_box=None if settings.compact_box is None else float(settings.compact_box),
    )


def _clamp_to_frustum(along: Tensor, z: Tensor, limit: float) -> Tensor:
    """`along` (x or y in view space), its ratio to z clamped; the clamped value counts as a constant (v1's gradient)."""
    ratio = along / z
    inside = ratio.abs() <= limit
    return torch.where(inside, along, (ratio.clamp(-limit, limit) * z).detach())


def _with_gradient_of(other: Tensor, value: Tensor) -> Tensor:
    """`value`, differentiated as if it were `other`."""
    return value.detach() + (other - other.detach())


def _rotation_matrices(quaternions: Tensor) -> Tensor:
    """[4, P] (w, x, y, z), used as given -> [3, 3, P]."""
    w, x, y, z = quaternions.unbind(0)
    entries = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(entries).view(3, 3, -1)


def _covariance_2d(
    rows: tuple[Tensor, Tensor],
    scales: Optional[Tensor],
    rotations: Optional[Tensor],
    cov3D: Optional[Tensor],
    modifier: float,
    upstream_gradients: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Entries (a, b, c) of J Sigma J^T before the low-pass; `rows` are the two rows [3, P] of J, world to pixel."""
    first, second = rows
    if cov3D is not None:
        xx, xy, xz, yy, yz, zz = cov3D.to(first.dtype).t().unbind(0)
        sigma = torch.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz]).view(3, 3, -1)
        left_x, left_y = (sigma * first[:, None]).sum(0), (sigma * second[:, None]).sum(0)
        return (left_x * first).sum(0), (left_x * second).sum(0), (left_y * second).sum(0)
    assert scales is not None and rotations is not None
    axes = _rotation_matrices(rotations.to(first.dtype).t())
    lengths = modifier * scales.to(first.dtype).t()
    if upstream_gradients:
        lengths = _with_gradient_of(scales.to(first.dtype).t(), lengths)
    x, y = (axes * first[:, None]).sum(0) * lengths, (axes * second[:, None]).sum(0) * lengths
    return (x * x).sum(0), (x * y).sum(0), (y * y).sum(0)


def _positions(camera: _Camera, means: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """View-space x, y, z and pixel position x, y of each Gaussian, [P] in the precision of the geometry."""
    world = means.to(camera.rotation.dtype).t().contiguous()
    view_x, view_y, z = (camera.rotation.t() @ world + camera.translation[:, None]).unbind(0)
    clip_x, clip_y, clip_w = (camera.projection[:3].t() @ world + camera.projection[3][:, None]).unbind(0)
    inverse_w = 1.0 / (clip_w + 1e-7)
    x = ((clip_x * inverse_w + 1.0) * camera.width - 1.0) * 0.5
    y = ((clip_y * inverse_w + 1.0) * camera.height - 1.0) * 0.5
    return view_x, view_y, z, x, y


def _project(
    camera: _Camera,
    settings: GaussianRasterizationSettings,
    means: Tensor,
    opacities: Tensor,
    scales: Optional[Tensor],
    rotations: Optional[Tensor],
    cov3D: Optional[Tensor],
) -> _Ellipses:
    """Gaussians in the world to ellipses in the image (v1's preprocess, EWA). Vectors are [3, P] here, for speed."""
    view_x, view_y, z, x, y = _positions(camera, means)
    tan_x, tan_y = camera.tan
    edge_x = _clamp_to_frustum(view_x, z, _FRUSTUM_MARGIN * tan_x)
    edge_y = _clamp_to_frustum(view_y, z, _FRUSTUM_MARGIN * tan_y)
    focal_z_x = camera.width / (2.0 * tan_x) / z
    focal_z_y = camera.height / (2.0 * tan_y) / z
    right, down, forward = camera.rotation.t()[:, :, None].unbind(0)  # the view axes in the world, [3, 1]
    rows = (
        focal_z_x * right - (focal_z_x * edge_x / z) * forward,
        focal_z_y * down - (focal_z_y * edge_y / z) * forward,
    )
    upstream = settings.upstream_gradients
    sharp_a, b, sharp_c = _covariance_2d(rows, scales, rotations, cov3D, camera.scale_modifier, upstream)
    a, c = sharp_a + camera.blur, sharp_c + camera.blur
    det = a * c - b * b
    opacity = opacities.to(det.dtype).reshape(-1)
    if settings.kernel_size is not None:
        sharp_det = sharp_a * sharp_c - b * b
        shared = torch.sqrt(sharp_det.clamp_min(1e-6) / (det.clamp_min(1e-6) + 1e-6) + 1e-6)
        if upstream:
            known, sharp, blurred = shared.detach(), sharp_det.detach(), det.detach()
            change = sharp_det / (blurred + 1e-6) - sharp / (blurred * blurred + 1e-6) * det
            shared = _with_gradient_of(0.5 * known / (known + 1e-6) ** 2 * change, shared)
        opacity = opacity * torch.where((sharp_det > 1e-6) & (det > 1e-6), shared, torch.zeros_like(shared))
    elif settings.antialiasing:
        sharp_det = sharp_a * sharp_c - b * b
        ratio = sharp_det / det
        if upstream:
            shifted = det / ((a + camera.blur) * (c + camera.blur) - b * b)
            ratio = _with_gradient_of(shifted, ratio)
        opacity = opacity * torch.sqrt(ratio.clamp_min(2.5e-5))
    return _Ellipses(x, y, z, a, b, c, det, opacity)


# Real spherical harmonics up to degree 3 in the sign convention of the 3DGS family.
_SH0 = 0.28209479177387814
_SH1 = 0.4886025119029199
_SH2 = (1.0925484305920792, -1.0925484305920792, 0.31539156525252005, -1.0925484305920792, 0.5462742152960396)
_SH3 = (
    -0.5900435899266435,
    2.890611442640554,
    -0.4570457994644658,
    0.3731763325901154,
    -0.4570457994644658,
    1.445305721320277,
    -0.5900435899266435,
)


def _sh_basis(degree: int, direction: Tensor) -> Tensor:
    """[P, 3] unit vectors -> [P, (degree + 1)^2] basis values."""
    x, y, z = direction.unbind(-1)
    terms: list[Tensor] = [torch.full_like(x, _SH0)]
    if degree > 0:
        terms += [-_SH1 * y, _SH1 * z, -_SH1 * x]
    if degree > 1:
        xx, yy, zz = x * x, y * y, z * z
        terms += [_SH2[0] * x * y, _SH2[1] * y * z, _SH2[2] * (2 * zz - xx - yy), _SH2[3] * x * z]
        terms += [_SH2[4] * (xx - yy)]
    if degree > 2:
        terms += [_SH3[0] * y * (3 * xx - yy), _SH3[1] * x * y * z, _SH3[2] * y * (4 * zz - xx - yy)]
        terms += [_SH3[3] * z * (2 * zz - 3 * xx - 3 * yy), _SH3[4] * x * (4 * zz - xx - yy)]
        terms += [_SH3[5] * z * (xx - yy), _SH3[6] * x * (xx - 3 * yy)]
    return torch.stack(terms, dim=-1)


def _colors(
    settings: GaussianRasterizationSettings,
    means: Tensor,
    shs: Optional[Tensor],
    precomputed: Optional[Tensor],
) -> Tensor:
    """[P, C] colors: the precomputed ones, or SH towards the camera + 0.5, at least 0."""
    if precomputed is not None:
        return precomputed
    assert shs is not None
    degree = min(int(settings.sh_degree), 3)
    if degree == 0:
        return (_SH0 * shs[:, 0] + 0.5).clamp_min(0.0)
    offset = means - settings.campos.detach().to(means).reshape(1, 3)
    direction = offset / offset.norm(dim=-1, keepdim=True)
    basis = _sh_basis(degree, direction)
    return ((basis[:, :, None] * shs[:, : basis.shape[1]]).sum(1) + 0.5).clamp_min(0.0)


# ---------------------------------------------------------------------------------------------------------------------
# Binning: which 8x8 tiles an ellipse covers.
# ---------------------------------------------------------------------------------------------------------------------


class _Reach(NamedTuple):
    """v1's footprint: radius [P] (0 = culled) and the rectangle of 16x16 tiles, half open, each [P] int64 unless said."""

    radius: Tensor  # int32
    left: Tensor
    right: Tensor
    top: Tensor
    bottom: Tensor


def _bins(low: Tensor, edge: int) -> Tensor:
    """Tile numbers of 16 pixels, truncated as (int) does, within an image of `edge` pixels."""
    count = (edge + _BIN - 1) // _BIN
    return torch.nan_to_num(low / _BIN).clamp(0, count).to(torch.int64)


def _reach(camera: _Camera, splats: _Ellipses, precision: torch.dtype) -> _Reach:
    """`precision` is that of the input, in which v1 compares depths."""
    mid = 0.5 * (splats.a + splats.c)
    largest = mid + torch.sqrt((mid * mid - splats.det).clamp_min(0.1))
    radius = torch.ceil(3.0 * torch.sqrt(largest))
    seen = (splats.z.to(precision) > _NEAR) & (splats.det != 0) & torch.isfinite(radius)
    if camera.compact_box is None:
        left, right = (
            _bins(splats.x - radius, camera.width),
            _bins(splats.x + radius + (_BIN - 1), camera.width),
        )
        top, bottom = (
            _bins(splats.y - radius, camera.height),
            _bins(splats.y + radius + (_BIN - 1), camera.height),
        )
        seen = seen & ((right - left) * (bottom - top) > 0)
    else:
        left, top = torch.zeros_like(radius, dtype=torch.int64), torch.zeros_like(radius, dtype=torch.int64)
        right, bottom = left + _whole_bins(camera.width), top + _whole_bins(camera.height)
        owner, _ = _compact_tiles(camera, splats)
        seen = seen & (torch.bincount(owner, minlength=radius.numel()) > 0)
    radius = torch.where(seen, radius, torch.zeros_like(radius)).clamp_max(
        2147483520.0
    )  # fits int32, exact in float32
    return _Reach(radius.to(torch.int32), left, right, top, bottom)


def _whole_bins(edge: int) -> int:
    return (edge + _BIN - 1) // _BIN


def _compact_tiles(camera: _Camera, splats: _Ellipses) -> tuple[Tensor, Tensor]:
    """The 16x16 tiles that an ellipse of `compact_box` touches: Gaussian and tile number, sorted by both, int64.

    The square of a tile is half open and holds its right and lower border's pixels' cells, as FastGS (after Speedy-Splat,
    Hanson et al. 2025) cuts them: 16 i to 16 i + 16. Within a row of tiles the ellipse is an interval in x.
    """
    assert camera.compact_box is not None
    level = camera.compact_box * 2.0 * torch.log(255.0 * splats.opacity)
    drawn = (splats.det > 0) & (splats.a > 0) & (splats.c > 0) & (level >= 0) & (splats.z > 0)
    level = torch.where(drawn, level, torch.zeros_like(level))
    half_x, half_y = torch.sqrt(level * splats.a), torch.sqrt(level * splats.c)
    first_row, last_row = (
        _bins(splats.y - half_y, camera.height),
        _bins(splats.y + half_y + _BIN, camera.height),
    )
    first_column, last_column = (
        _bins(splats.x - half_x, camera.width),
        _bins(splats.x + half_x + _BIN, camera.width),
    )
    drawn = drawn & torch.isfinite(splats.x + splats.y + half_x + half_y) & (last_column > first_column)
    rows = torch.where(drawn, last_row - first_row, torch.zeros_like(first_row))

    owner, row0 = _arange_per_row(rows)
    row = torch.arange(owner.numel(), device=owner.device) + (first_row - row0).index_select(0, owner)
    one = _Ellipses(*(field.index_select(0, owner) for field in splats))
    level, half_y = level.index_select(0, owner), half_y.index_select(0, owner)
    top = torch.maximum((row * _BIN).to(one.y.dtype) - one.y, -half_y)
    bottom = torch.minimum((row * _BIN + _BIN).to(one.y.dtype) - one.y, half_y)
    peak = one.b * torch.sqrt(level / one.a)

    def edge(peak_y: Tensor, sign: float) -> Tensor:
        y = torch.minimum(torch.maximum(peak_y, top), bottom)
        return (
            one.x
            + one.b / one.c * y
            + sign * torch.sqrt((one.det / one.c * (level - y * y / one.c)).clamp_min(0.0))
        )

    left = torch.maximum(_bins(edge(-peak, -1.0), camera.width), first_column.index_select(0, owner))
    right = torch.minimum(_bins(edge(peak, 1.0) + _BIN, camera.width), last_column.index_select(0, owner))
    line, start = _arange_per_row((right - left).clamp_min(0))
    first = row * _whole_bins(camera.width) + left - start
    tile = torch.arange(line.numel(), device=line.device) + first.index_select(0, line)
    return owner.index_select(0, line), tile


def _within_compact_box(camera: _Camera, splats: _Ellipses, gaussian: Tensor, tile: Tensor) -> Tensor:
    """Which of the pairs (Gaussian, 8x8 tile) lie in a 16x16 tile that FastGS draws the Gaussian in; [E] bool."""
    bins_x, bins_y = _whole_bins(camera.width), _whole_bins(camera.height)
    tiles_x, ratio = (camera.width + _TILE - 1) // _TILE, _BIN // _TILE
    owner, touched = _compact_tiles(camera, splats)
    keys = owner * (bins_x * bins_y) + touched  # ascending, as `_compact_tiles` lists them
    row = torch.div(tile, tiles_x * ratio, rounding_mode="floor")
    coarse = row * bins_x + torch.div(tile % tiles_x, ratio, rounding_mode="floor")
    wanted = gaussian * (bins_x * bins_y) + coarse
    if not keys.numel():
        return torch.zeros_like(wanted, dtype=torch.bool)
    return keys.index_select(0, torch.searchsorted(keys, wanted).clamp_max(keys.numel() - 1)) == wanted


class _Pairs(NamedTuple):
    """(Gaussian, tile) pairs sorted by tile, then depth; tiles in order of falling pair count."""

    gaussian: Tensor  # [E] int32, index into the depth-sorted visible Gaussians
    tile: Tensor  # [N] int64, tile number of every non-empty tile
    start: Tensor  # [N] int64, first pair
    length: Tensor  # [N] int64, pairs of the tile, falling


def _arange_per_row(count: Tensor) -> tuple[Tensor, Tensor]:
    """For row lengths [R]: the row of every element and the first element of every row."""
    ends = torch.cumsum(count, 0)
    row = torch.repeat_interleave(torch.arange(count.numel(), device=count.device), count)
    return row, ends - count


def _list_pairs(camera: _Camera, splats: _Ellipses, reach: _Reach, margin: float) -> _Pairs:
    """All pairs whose tile holds a pixel center inside the alpha >= 1/255 ellipse and v1's rectangle.

    `splats` are visible and sorted by depth. Each ellipse is cut into bands of 8 pixel rows; the exact extent in x of the
    ellipse within a band gives its tiles. `margin` (pixels) widens the ellipse against rounding and sub-pixel offsets.
    """
    # Power at the 1/255 level set: d^T conic d = level.
    level = (2.0 * torch.log(255.0 * splats.opacity)).clamp_min(0.0)
    bounded = (splats.det > 0) & (splats.a > 0)
    wide = torch.full_like(level, 4.0 * (camera.width + camera.height))
    half_x = torch.where(bounded, torch.sqrt((level * splats.a).clamp_min(0.0)), wide)
    half_y = torch.where(bounded, torch.sqrt((level * splats.c).clamp_min(0.0)), wide)
    first_y = torch.maximum(torch.ceil(splats.y - half_y - margin), (reach.top * _BIN).to(level.dtype))
    last_y = torch.floor(splats.y + half_y + margin)
    last_y = torch.minimum(last_y, (reach.bottom * _BIN - 1).clamp_max(camera.height - 1).to(level.dtype))
    band0 = torch.div(first_y, _TILE, rounding_mode="floor").to(torch.int64)
    band1 = torch.div(last_y, _TILE, rounding_mode="floor").to(torch.int64)
    bands = torch.where(last_y >= first_y, band1 - band0 + 1, torch.zeros_like(band0))

    owner, row0 = _arange_per_row(bands)
    band = torch.arange(owner.numel(), device=owner.device) + (band0 - row0).index_select(0, owner)

    def per_band(value: Tensor) -> Tensor:
        return value.index_select(0, owner)

    # In a band the right edge peaks at the ellipse's rightmost point, or at the end of the band nearest to it.
    top = torch.maximum((band * _TILE).to(level.dtype), per_band(first_y)) - per_band(splats.y) - margin
    bottom = (
        torch.minimum((band * _TILE + _TILE - 1).to(level.dtype), per_band(last_y))
        - per_band(splats.y)
        + margin
    )
    slope, c, level_b = per_band(splats.b / splats.c), per_band(splats.c), per_band(level)
    spread = per_band((splats.det / splats.c).clamp_min(0.0))
    peak = per_band(splats.b * torch.sqrt(level / splats.a.clamp_min(1e-30)))

    def edge(peak_y: Tensor, sign: float) -> Tensor:
        y = torch.minimum(torch.maximum(peak_y, top), bottom)
        return slope * y + sign * torch.sqrt((spread * (level_b - y * y / c)).clamp_min(0.0))

    x, keep = per_band(splats.x), per_band(bounded)
    wide_b = per_band(half_x)
    high = torch.where(keep, edge(peak, 1.0), wide_b)
    low = torch.where(keep, edge(-peak, -1.0), -wide_b)
    first_x = torch.maximum(torch.ceil(x + low - margin), per_band(reach.left * _BIN).to(x.dtype))
    last_x = torch.minimum(
        torch.floor(x + high + margin),
        per_band((reach.right * _BIN - 1).clamp_max(camera.width - 1)).to(x.dtype),
    )
    column0 = torch.div(first_x, _TILE, rounding_mode="floor").to(torch.int64)
    column1 = torch.div(last_x, _TILE, rounding_mode="floor").to(torch.int64)
    columns = torch.where(last_x >= first_x, column1 - column0 + 1, torch.zeros_like(column0))

    tiles_x = (camera.width + _TILE - 1) // _TILE
    tiles_y = (camera.height + _TILE - 1) // _TILE
    row, pair0 = _arange_per_row(columns)
    first_tile = band * tiles_x + column0 - pair0
    tile = torch.arange(row.numel(), device=row.device) + first_tile.index_select(0, row)
    gaussian = owner.index_select(0, row)
    if camera.compact_box is not None:
        kept = _within_compact_box(camera, splats, gaussian, tile).nonzero().view(-1)
        gaussian, tile = gaussian.index_select(0, kept), tile.index_select(0, kept)
    tile, order = torch.sort(tile.to(torch.int32), stable=True)
    gaussian = gaussian.to(torch.int32).index_select(0, order)
    counts = torch.bincount(tile, minlength=tiles_x * tiles_y)
    starts = torch.cumsum(counts, 0) - counts
    count, by_count = torch.sort(counts, descending=True, stable=True)
    filled = int((count > 0).sum())
    by_count = by_count[:filled]
    return _Pairs(gaussian, by_count, starts.index_select(0, by_count), count[:filled])


@functools.lru_cache(maxsize=None)
def _just_below(value: float, dtype: torch.dtype) -> float:
    """The largest number of `dtype` below `value`: `torch.threshold` keeps what is *greater* than its bound."""
    exact = torch.tensor(value, dtype=dtype)
    return float(torch.nextafter(exact, torch.zeros_like(exact)))


# ---------------------------------------------------------------------------------------------------------------------
# Blending: chunks of (depth K) x (tiles G) x (64 pixels), and the same chunks backwards.
# ---------------------------------------------------------------------------------------------------------------------


class _Chunk(NamedTuple):
    """A block of depth of some tiles in the forward pass, with its transmittance checkpoint."""

    tiles: Tensor  # [G] int64, positions in _Pairs
    first: int  # depth rank of the first pair
    depth: int  # K
    before: Tensor  # [G, 64] transmittance in front of the block; 0 where the pixel has stopped


class _Scene(NamedTuple):
    """Inputs of the blending: per-Gaussian tables with one extra row for padding, and the pixel grid."""

    geometry: Tensor  # [V + 1, 6] x, y, then -a'/2, -b', -c'/2 of the conic and the opacity, as log2
    ceiling: Optional[Tensor]  # [V + 1] highest log2 alpha where a conic is indefinite; None if none is
    features: Tensor  # [V + 1, F] colors, then depth, inverse depth and 1
    pairs: _Pairs
    center_x: Tensor  # [N] tile centers, geometry precision
    center_y: Tensor
    basis: Tensor  # [6, 64] or, with sub-pixel offsets, [N, 6, 64]
    inside: Tensor  # [N, 64], 1 where the pixel of the tile is in the image, else 0


class _Workspace:
    """Buffers that every chunk reuses: on a CPU, allocating costs more than the arithmetic."""

    def __init__(self, like: Tensor) -> None:
        self._dtype, self._device = like.dtype, like.device
        self._flat: dict[int, Tensor] = {}

    def take(self, slot: int, count: int) -> Tensor:
        found = self._flat.get(slot)
        if found is None or found.numel() < count:
            with torch.inference_mode(False):  # a tensor born in inference mode could not be used in training
                found = torch.empty(count, dtype=self._dtype, device=self._device)
            self._flat[slot] = found
        return found[:count]


class _Kept(threading.local):
    """The workspaces of this thread."""

    def __init__(self) -> None:
        self.by_dtype: dict[torch.dtype, _Workspace] = {}


_kept = _Kept()


def _workspace(like: Tensor) -> _Workspace:
    """A workspace; on a CPU the thread keeps it for its next call (6 buffers of at most `_CPU_CHUNK` numbers)."""
    if like.device.type != "cpu":
        return _Workspace(like)
    return _kept.by_dtype.setdefault(like.dtype, _Workspace(like))


@contextlib.contextmanager
def _full_precision(device: torch.device) -> Iterator[None]:
    """No autocast and no TF32 inside: the products here need the full precision of their type."""
    with contextlib.ExitStack() as stack:
        if device.type in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device.type, enabled=False))
        if device.type == "cuda":
            matmul: Any = torch.backends.cuda.matmul
            # torch 2.9 renamed the switch, and refuses to read the old name once the new one was used
            renamed = hasattr(torch.backends, "fp32_precision")
            switch, exact = ("fp32_precision", "ieee") if renamed else ("allow_tf32", False)
            stack.callback(setattr, matmul, switch, getattr(matmul, switch))
            setattr(matmul, switch, exact)
        yield


class _Alpha(NamedTuple):
    """Alpha and transmittance of one chunk, and intermediates for the backward pass."""

    rows: Tensor  # [K * G] rows of the tables
    offset_x: Tensor  # [K * G] Gaussian minus tile center
    offset_y: Tensor
    coefficients: Tensor  # [6, K * G]
    alpha: Tensor  # [K, G * 64], zero where skipped
    uncapped: Tensor  # the same without the 0.99 cap (the same tensor where nothing is capped)
    transmittance: Tensor  # [K + 1, G * 64]
    stopping: bool  # some pixel stops inside the chunk


def _pair_rows(scene: _Scene, chunk_tiles: Tensor, first: int, depth: int) -> Tensor:
    """[K * G] table rows of a chunk, depth-major; tiles that end early get the padding row."""
    start = scene.pairs.start.index_select(0, chunk_tiles)
    remaining = scene.pairs.length.index_select(0, chunk_tiles) - first
    rank = torch.arange(depth, device=start.device)[:, None]
    position = (start + first + rank).clamp_max(scene.pairs.gaussian.numel() - 1)
    rows = scene.pairs.gaussian.index_select(0, position.view(-1)).to(torch.int64)
    padding = (rank >= remaining).view(-1)
    return rows.masked_fill_(padding, scene.features.shape[0] - 1)


def _alpha(scene: _Scene, work: _Workspace, tiles: Tensor, first: int, depth: int, before: Tensor) -> _Alpha:
    """Evaluate a chunk: one matrix product for the power, elementwise rules, a loop over depth for transmittance."""
    groups = tiles.numel()
    index = _pair_rows(scene, tiles, first, depth)
    x, y, aa, bb, cc, log_opacity = scene.geometry.index_select(0, index).unbind(1)
    dx = (x.view(depth, groups) - scene.center_x.index_select(0, tiles)).view(-1)
    dy = (y.view(depth, groups) - scene.center_y.index_select(0, tiles)).view(-1)
    coefficients = scene.features.new_empty(6, depth * groups)
    across, down = aa * dx, cc * dy
    coefficients[0] = log_opacity + across * dx + down * dy + bb * dx * dy
    coefficients[1] = -2.0 * across - bb * dy
    coefficients[2] = -2.0 * down - bb * dx
    coefficients[3], coefficients[4], coefficients[5] = aa, bb, cc

    alpha = work.take(0, depth * groups * _AREA).view(depth * groups, _AREA)
    if scene.basis.dim() == 2:
        torch.mm(coefficients.t(), scene.basis, out=alpha)
    else:
        per_tile = coefficients.view(6, depth, groups).permute(2, 1, 0)
        power = torch.bmm(per_tile, scene.basis.index_select(0, tiles))
        alpha.view(depth, groups, _AREA).copy_(power.transpose(0, 1))
    if scene.ceiling is not None:
        alpha.masked_fill_(alpha > scene.ceiling.index_select(0, index)[:, None], _OFF)
    torch.exp2(alpha, out=alpha)
    torch.threshold_(alpha, _just_below(_ALPHA_MIN, alpha.dtype), 0.0)
    uncapped = alpha = alpha.view(depth, groups * _AREA)
    if float(log_opacity.max()) > math.log2(_ALPHA_CAP):
        capped = work.take(1, alpha.numel()).view_as(alpha)
        alpha = torch.clamp(uncapped, max=_ALPHA_CAP, out=capped)

    running = work.take(2, (depth + 1) * groups * _AREA).view(depth + 1, groups * _AREA)
    running[0] = before.view(-1)
    steps = running.unbind(0)
    for rank, opaque in enumerate(alpha.unbind(0)):
        torch.addcmul(steps[rank], steps[rank], opaque, value=-1.0, out=steps[rank + 1])
    stopping = bool(((steps[-1] < _STOP) & (steps[0] > 0)).any())
    return _Alpha(index, dx, dy, coefficients, alpha, uncapped, running, stopping)


def _weights(state: _Alpha, out: Tensor) -> Tensor:
    """alpha T of every pair and pixel, 0 from the stop on. Also zeroes `state.alpha` there if the pixel stops here."""
    if state.stopping:
        torch.ge(state.transmittance[1:], _STOP, out=out)
        state.alpha.mul_(out)
        if state.uncapped is not state.alpha:
            state.uncapped.mul_(out)
    return torch.mul(state.alpha, state.transmittance[:-1], out=out)


_Visit = Callable[[Tensor, _Alpha, Tensor], None]


def _blend(
    scene: _Scene, channels: int, cells: int, keep: bool, visit: Optional[_Visit] = None
) -> tuple[Tensor, list[_Chunk]]:
    """Front-to-back blending: [N, channels, 64] sums of feature times weight, and the chunks for the backward pass.

    `visit`, where given, sees every chunk: its tiles [G], its alpha, and its weights alpha T, [K, G * 64], 0 where a pixel
    is not reached. They are buffers, which the next chunk overwrites.
    """
    pairs, features = scene.pairs, scene.features
    tiles = pairs.tile.numel()
    sums = features.new_zeros(tiles, channels, _AREA)
    transmittance = torch.ones_like(scene.inside)
    work = _workspace(features)
    chunks: list[_Chunk] = []
    active = torch.arange(tiles, device=features.device)
    first = 0
    while active.numel():
        counts: list[int] = pairs.length.index_select(0, active).tolist()
        at = 0
        while at < len(counts):
            depth = min(_DEPTH_BLOCK, counts[at] - first)
            chosen = active[at : at + max(1, cells // ((depth + 1) * _AREA))]
            at += chosen.numel()
            before = transmittance.index_select(0, chosen)
            state = _alpha(scene, work, chosen, first, depth, before)
            weights = _weights(state, work.take(3, state.alpha.numel()).view_as(state.alpha))
            if visit is not None:
                visit(chosen, state, weights)
            rows = features.index_select(0, state.rows).view(depth, chosen.numel(), -1)[:, :, :channels]
            blended = torch.bmm(rows.permute(1, 2, 0), weights.view(depth, -1, _AREA).transpose(0, 1))
            sums.index_add_(0, chosen, blended)
            after = torch.threshold(state.transmittance[-1], _just_below(_STOP, features.dtype), 0.0)
            transmittance.index_copy_(0, chosen, after.view(-1, _AREA))
            if keep:
                chunks.append(_Chunk(chosen, first, depth, before))
        first += _DEPTH_BLOCK
        unfinished = (transmittance * scene.inside).index_select(0, active).amax(1) > 0
        active = active[unfinished & (pairs.length.index_select(0, active) > first)]
    return sums, chunks


class _PairGradients(NamedTuple):
    """Gradients gathered per visible Gaussian, double precision where the device has it."""

    moments: Tensor  # [6, V] sums of E, E dx, E dy, E dx^2, E dx dy, E dy^2 with E = dL/d(power), d = Gaussian - pixel
    features: Tensor  # [channels, V]
    absolute: Optional[Tensor]  # [2, V] sums over pixels of |dL/dx| and |dL/dy|


def _blend_backward(
    scene: _Scene, chunks: Sequence[_Chunk], upstream: Tensor, behind: Tensor, with_absolute: bool
) -> _PairGradients:
    """Back-to-front over the chunks of `_blend`.

    With B_k the feature seen behind contribution k (dotted with the upstream gradient g), B_{k-1} = lerp(B_k, f_k g, alpha_k)
    and dL/dalpha_k = T_k (f_k g - B_k): no division by 1 - alpha, no cancellation in dark pixels.

    Args:
        upstream: [N, channels, 64] gradient of the image, per tile.
        behind: [N, 64] gradient dotted with what lies behind everything (the background); overwritten.
        with_absolute: also sum absolute position gradients.
    """
    channels, visible = upstream.shape[1], scene.features.shape[0]
    moments = scene.geometry.new_zeros(6, visible)
    features = scene.features.new_zeros(channels, visible)
    absolute = scene.geometry.new_zeros(2, visible) if with_absolute else None
    work = _workspace(scene.features)
    for chunk in reversed(chunks):
        groups, depth = chunk.tiles.numel(), chunk.depth
        size, slab = depth * groups * _AREA, (depth, groups * _AREA)
        state = _alpha(scene, work, chunk.tiles, chunk.first, depth, chunk.before)
        weights = _weights(state, work.take(3, size).view(slab))

        rows = scene.features.index_select(0, state.rows).view(depth, groups, -1)[:, :, :channels]
        gradient = upstream.index_select(0, chunk.tiles)
        # `per_tile` is done with when `seen`, in the same buffer, begins
        seen = work.take(5, size + groups * _AREA).view(depth + 1, groups * _AREA)
        per_tile = work.take(5, size).view(groups, depth, _AREA)
        torch.bmm(rows.transpose(0, 1).contiguous(), gradient, out=per_tile)
        own = work.take(4, size).view(slab)
        own.view(depth, groups, _AREA).copy_(per_tile.transpose(0, 1))
        seen[depth] = behind.index_select(0, chunk.tiles).view(-1)
        steps, owns, alphas = seen.unbind(0), own.unbind(0), state.alpha.unbind(0)
        for rank in range(depth - 1, -1, -1):
            torch.lerp(steps[rank + 1], owns[rank], alphas[rank], out=steps[rank])
        # a pixel that had stopped in front of this block does not see it
        carried = torch.where(
            chunk.before > 0, steps[0].view(groups, _AREA), steps[depth].view(groups, _AREA)
        )
        behind.index_copy_(0, chunk.tiles, carried)

        by_tile = weights.view(depth, groups, _AREA).permute(1, 2, 0)
        for_features = torch.bmm(gradient, by_tile)  # [G, channels, K]
        _scatter(features, state.rows, for_features.permute(1, 2, 0).reshape(channels, -1))

        power = own.sub_(seen[1:])
        if state.uncapped is state.alpha:
            power.mul_(weights)
        else:  # the cap passes the gradient straight through: opacity e^power instead of alpha
            power.mul_(state.transmittance[:-1]).mul_(state.uncapped)
        _gather_moments(scene, chunk, state, power.view(depth * groups, _AREA), moments)
        if absolute is not None:
            _gather_absolute(scene, chunk, state, power.view(depth * groups, _AREA), absolute)
    return _PairGradients(moments[:, :-1], features[:, :-1], None if absolute is None else absolute[:, :-1])


def _gather_moments(scene: _Scene, chunk: _Chunk, state: _Alpha, power: Tensor, moments: Tensor) -> None:
    """Add a chunk's moments of dL/d(power) about the Gaussians' centers to `moments` [6, V + 1]."""
    if scene.basis.dim() == 2:
        local = torch.mm(scene.basis, power.t())  # twice as fast as the transpose
    else:
        per_tile = power.view(chunk.depth, -1, _AREA).permute(1, 2, 0)
        local = torch.bmm(scene.basis.index_select(0, chunk.tiles), per_tile)  # [G, 6, K]
        local = local.permute(1, 2, 0).reshape(6, -1)
    m0, mu, mv, muu, muv, mvv = local.to(moments.dtype).unbind(0)
    dx, dy = state.offset_x, state.offset_y
    sx, sy = dx * m0 - mu, dy * m0 - mv
    sums = [m0, sx, sy, dx * (sx - mu) + muu, dx * sy - dy * mu + muv, dy * (sy - mv) + mvv]
    _scatter(moments, state.rows, torch.stack(sums))


def _scatter(totals: Tensor, rows: Tensor, values: Tensor) -> None:
    """totals[:, rows] += values, in order on a CPU."""
    totals.scatter_add_(1, rows.expand(values.shape[0], -1), values)


def _gather_absolute(scene: _Scene, chunk: _Chunk, state: _Alpha, power: Tensor, absolute: Tensor) -> None:
    """Add the sums over pixels of |dL/dx| and |dL/dy| to `absolute` [2, V + 1]."""
    _, linear_u, linear_v, aa, bb, cc = state.coefficients.unbind(0)
    slopes = []
    # q(u, v) has dq/dx_Gaussian = -dq/du at the pixel (u, v)
    for constant, along_u, along_v in ((linear_u, 2 * aa, bb), (linear_v, bb, 2 * cc)):
        terms = torch.stack([constant, along_u, along_v], dim=1)
        if scene.basis.dim() == 2:
            slope = torch.mm(terms, scene.basis[:3])
        else:
            by_tile = terms.view(chunk.depth, -1, 3).transpose(0, 1)
            slope = torch.bmm(by_tile, scene.basis.index_select(0, chunk.tiles)[:, :3])
            slope = slope.transpose(0, 1).reshape(-1, _AREA)
        slopes.append(slope.mul_(power).abs_().sum(1).to(absolute.dtype) / _LOG2E)
    _scatter(absolute, state.rows, torch.stack(slopes))


# ---------------------------------------------------------------------------------------------------------------------
# The autograd node: projection, binning and blending, and the same backwards.
# ---------------------------------------------------------------------------------------------------------------------


class _Plan(NamedTuple):
    """Data for the backward pass besides the inputs."""

    settings: GaussianRasterizationSettings
    order: Tensor  # [V] visible Gaussians, front to back
    scene: _Scene
    chunks: list[_Chunk]
    tiles: tuple[int, int]  # rows, columns


def _chunk_cells(budget_bytes: int, like: Tensor) -> int:
    cells = budget_bytes // (_BUFFERS * like.element_size())
    return min(cells, _CPU_CHUNK) if like.device.type == "cpu" else cells


def _non_finite_rows(inputs: Sequence[Optional[Tensor]]) -> Optional[Tensor]:
    """[P] True where a Gaussian has a NaN or an infinity; None where all are finite (the usual case, found by sums)."""
    bad: Optional[Tensor] = None
    for tensor in inputs:
        if tensor is not None and not bool(torch.isfinite(tensor.sum())):
            rows = ~torch.isfinite(tensor).reshape(tensor.shape[0], -1).all(1)
            if bool(rows.any()):  # else only the sum is not finite
                bad = rows if bad is None else bad | rows
    return bad


def _visible_order(splats: _Ellipses, reach: _Reach, like: Tensor) -> Tensor:
    """Indices of the visible Gaussians, front to back, ties by index."""
    # The 1/255 bound is exact per pair and pixel later; the slack here is for rounding.
    index = ((reach.radius > 0) & (splats.opacity >= _ALPHA_MIN * (1 - 1e-6))).nonzero().view(-1)
    depth = splats.z.index_select(0, index).to(like.dtype)
    # depth > 0, so its bits sort as it does, and integers sort faster
    bits = depth.view(torch.int32 if depth.dtype == torch.float32 else torch.int64)
    return index.index_select(0, torch.sort(bits, stable=True)[1])


def _take(tensor: Optional[Tensor], index: Tensor) -> Optional[Tensor]:
    return None if tensor is None else tensor.detach().index_select(0, index)


def _tables(splats: _Ellipses, colors: Tensor) -> tuple[Tensor, Optional[Tensor], Tensor]:
    """`geometry`, `ceiling` and `features` of `_Scene`, padding row included."""
    log_opacity = torch.log2(splats.opacity)
    scale = -0.5 * _LOG2E / splats.det
    columns = [splats.x, splats.y, splats.c * scale, -2.0 * splats.b * scale, splats.a * scale, log_opacity]
    geometry = splats.x.new_zeros(splats.x.numel() + 1, 6)
    torch.stack(columns, dim=1, out=geometry[:-1])
    geometry[-1, 5] = _OFF
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
    columns = (width + _TILE - 1) // _TILE
    column, row = tile % columns, torch.div(tile, columns, rounding_mode="floor")
    steps = torch.arange(_TILE, device=tile.device)
    v, u = (grid.reshape(1, _AREA) for grid in torch.meshgrid(steps, steps, indexing="ij"))
    pixel_x, pixel_y = column[:, None] * _TILE + u, row[:, None] * _TILE + v
    inside = ((pixel_x < width) & (pixel_y < height)).to(like.dtype)
    middle = 0.5 * (_TILE - 1)
    local_x, local_y = u.to(like.dtype) - middle, v.to(like.dtype) - middle
    if _moves_pixels(settings):
        assert settings.subpixel_offset is not None
        offset = settings.subpixel_offset.detach().to(like)
        offset = offset[pixel_y.clamp_max(height - 1), pixel_x.clamp_max(width - 1)]  # [N, 64, 2]
        local_x, local_y = local_x + offset[..., 0], local_y + offset[..., 1]
    monomials = [torch.ones_like(local_x), local_x, local_y, local_x**2, local_x * local_y, local_y**2]
    basis = torch.stack(monomials, dim=1)
    if basis.shape[0] == 1 and not _moves_pixels(settings):
        basis = basis[0]
    geometry = _geometry_dtype(like)
    return column.to(geometry) * _TILE + middle, row.to(geometry) * _TILE + middle, basis, inside


def _moves_pixels(settings: GaussianRasterizationSettings) -> bool:
    return settings.subpixel_offset is not None and bool((settings.subpixel_offset != 0).any())


def _to_image(per_tile: Tensor, plan_tiles: tuple[int, int], tile: Tensor, height: int, width: int) -> Tensor:
    """[N, C, 64] sums of the non-empty tiles -> [C, H, W], zero elsewhere."""
    rows, columns = plan_tiles
    channels = per_tile.shape[1]
    full = per_tile.new_zeros(rows * columns, channels, _AREA).index_copy_(0, tile, per_tile)
    image = full.view(rows, columns, channels, _TILE, _TILE).permute(2, 0, 3, 1, 4)
    return image.reshape(channels, rows * _TILE, columns * _TILE)[:, :height, :width]


def _to_tiles(image: Tensor, plan_tiles: tuple[int, int], tile: Tensor) -> Tensor:
    """The inverse of `_to_image`: [C, H, W] -> [N, C, 64], zero outside the image."""
    rows, columns = plan_tiles
    channels, height, width = image.shape
    padded = nn.functional.pad(image, (0, columns * _TILE - width, 0, rows * _TILE - height))
    full = padded.view(channels, rows, _TILE, columns, _TILE).permute(1, 3, 0, 2, 4)
    return full.reshape(rows * columns, channels, _AREA).index_select(0, tile)


class _Arranged(NamedTuple):
    """What lies before the blending."""

    splats: _Ellipses  # of all P
    radius: Tensor  # [P] int32, 0 where culled
    order: Tensor  # [V] visible Gaussians, front to back
    scene: _Scene
    colors: int  # channels


def _arrange(
    settings: GaussianRasterizationSettings,
    means3D: Tensor,
    opacities: Tensor,
    shs: Optional[Tensor],
    colors_precomp: Optional[Tensor],
    scales: Optional[Tensor],
    rotations: Optional[Tensor],
    cov3D: Optional[Tensor],
) -> _Arranged:
    """Project and list: the Gaussians of an image, front to back, in the tiles that they reach."""
    camera = _camera(settings, means3D)
    splats = _project(camera, settings, means3D, opacities, scales, rotations, cov3D)
    reach = _reach(camera, splats, means3D.dtype)
    broken = _non_finite_rows((means3D, opacities, shs, colors_precomp, scales, rotations, cov3D))
    if broken is not None:
        reach.radius[broken] = 0
    order = _visible_order(splats, reach, means3D)
    visible = _Ellipses(*(field.index_select(0, order) for field in splats))
    ordered = _Reach(*(field.index_select(0, order) for field in reach))
    margin = 1e-3
    if _moves_pixels(settings):
        assert settings.subpixel_offset is not None
        margin += float(settings.subpixel_offset.abs().max())
    pairs = _list_pairs(camera, visible, ordered, margin)

    colors = _colors(
        settings, means3D.index_select(0, order), _take(shs, order), _take(colors_precomp, order)
    )
    geometry, ceiling, features = _tables(visible, colors)
    scene = _Scene(geometry, ceiling, features, pairs, *_pixel_grid(settings, pairs.tile, means3D))
    return _Arranged(splats, reach.radius, order, scene, colors.shape[1])


def _forward(
    ctx: Any,
    settings: GaussianRasterizationSettings,
    budget_bytes: int,
    means3D: Tensor,
    means2D: Tensor,
    opacities: Tensor,
    shs: Optional[Tensor],
    colors_precomp: Optional[Tensor],
    scales: Optional[Tensor],
    rotations: Optional[Tensor],
    cov3D: Optional[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Project, list, blend; leaves a `_Plan` in `ctx` if a gradient may be asked for."""
    height, width = int(settings.image_height), int(settings.image_width)
    _, radius, order, scene, count = _arrange(
        settings, means3D, opacities, shs, colors_precomp, scales, rotations, cov3D
    )
    differentiable = any(ctx.needs_input_grad)
    sums, chunks = _blend(scene, scene.features.shape[1], _chunk_cells(budget_bytes, means3D), differentiable)

    tiles = ((height + _TILE - 1) // _TILE, (width + _TILE - 1) // _TILE)
    image = _to_image(sums, tiles, scene.pairs.tile, height, width)
    depth, invdepth, alpha = image[count : count + 1], image[count + 1 : count + 2], image[count + 2 :]
    background = settings.bg.detach().to(means3D).reshape(-1, 1, 1)
    color = image[:count] + (1.0 - alpha) * background
    if differentiable:
        ctx.save_for_backward(means3D, means2D, opacities, shs, colors_precomp, scales, rotations, cov3D)
        ctx.plan = _Plan(settings, order, scene, chunks, tiles)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(radius)
    return color, radius, invdepth.contiguous(), alpha.contiguous(), depth.contiguous()


def _backward(
    ctx: Any,
    color: Optional[Tensor],
    invdepth: Optional[Tensor],
    alpha: Optional[Tensor],
    depth: Optional[Tensor],
) -> tuple[Optional[Tensor], ...]:
    """Gradients of the inputs of `_Rasterize.forward`, from those of the images."""
    plan: _Plan = ctx.plan
    scene, settings = plan.scene, plan.settings
    inputs: tuple[Optional[Tensor], ...] = ctx.saved_tensors
    upstream, behind = _upstream(plan, (color, depth, invdepth, alpha), scene.features)
    means2D = inputs[1]
    absolute = settings.kernel_size is not None or (means2D is not None and means2D.shape[1] > 3)
    pulled = _blend_backward(scene, plan.chunks, upstream, behind, with_absolute=absolute)
    needed = ctx.needs_input_grad[2:]
    gradients = _pull_through_projection(plan, inputs, needed, pulled)
    if means2D is not None and needed[1]:
        gradients[1] = _screen_gradient(plan, pulled, means2D)
    return (None, None, *gradients)


class _Rasterize(torch.autograd.Function):
    """(means3D, means2D, opacities, shs, colors, scales, rotations, cov3D) -> color, radii, 1/depth, alpha, depth."""

    @staticmethod
    def forward(
        ctx: Any,
        settings: GaussianRasterizationSettings,
        budget_bytes: int,
        means3D: Tensor,
        means2D: Tensor,
        opacities: Tensor,
        shs: Optional[Tensor],
        colors_precomp: Optional[Tensor],
        scales: Optional[Tensor],
        rotations: Optional[Tensor],
        cov3D: Optional[Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        with _full_precision(means3D.device):
            inputs = (means3D, means2D, opacities, shs, colors_precomp, scales, rotations, cov3D)
            return _forward(ctx, settings, budget_bytes, *inputs)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,
        color: Optional[Tensor],
        _radii: Optional[Tensor],
        invdepth: Optional[Tensor],
        alpha: Optional[Tensor],
        depth: Optional[Tensor],
    ) -> tuple[Optional[Tensor], ...]:
        with _full_precision(ctx.plan.order.device):
            return _backward(ctx, color, invdepth, alpha, depth)


def _upstream(plan: _Plan, images: Sequence[Optional[Tensor]], features: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of (color, depth, inverse depth, alpha) -> [N, channels, 64] per tile and what the background adds."""
    color, extras = images[0], images[1:]
    count = features.shape[1] - 3
    height, width = int(plan.settings.image_height), int(plan.settings.image_width)
    if color is None:
        color = features.new_zeros(count, height, width)
    background = plan.settings.bg.detach().to(features).reshape(-1, 1)
    parts = [color]
    if any(extra is not None for extra in extras):
        parts += [color.new_zeros(1, height, width) if extra is None else extra for extra in extras]
    upstream = _to_tiles(torch.cat(parts), plan.tiles, plan.scene.pairs.tile)
    return upstream, (upstream[:, :count] * background).sum(1)


def _conic(splats: _Ellipses) -> tuple[Tensor, Tensor, Tensor]:
    return splats.c / splats.det, -splats.b / splats.det, splats.a / splats.det


def _pull_through_projection(
    plan: _Plan, inputs: Sequence[Optional[Tensor]], needed: Sequence[bool], pulled: _PairGradients
) -> list[Optional[Tensor]]:
    """Gradients of the inputs, by running the projection of the visible Gaussians again under autograd."""
    settings = plan.settings
    leaves = [_take(tensor, plan.order) for tensor in inputs]
    wanted = [k for k, need in enumerate(needed) if need and k != 1]  # 1 is means2D, which takes no part
    with torch.enable_grad():
        for k in wanted:
            leaf = leaves[k]
            assert leaf is not None
            leaf.requires_grad_(True)
        means, _, opacities, shs, precomputed, scales, rotations, cov3D = leaves
        assert means is not None and opacities is not None
        camera = _camera(settings, means)
        splats = _project(camera, settings, means, opacities, scales, rotations, cov3D)
        colors = _colors(settings, means, shs, precomputed)
        conic = _conic(splats)

    gx, gy = _position_gradient(splats, pulled)
    m0, _, _, mxx, mxy, myy = pulled.moments.unbind(0)
    damping = splats.det.detach() ** 2
    damping = damping / (damping + 1e-7)
    count = colors.shape[1]
    flow = [
        (splats.x, gx),
        (splats.y, gy),
        (conic[0], -0.5 * mxx * damping),
        (conic[1], -mxy * damping),
        (conic[2], -0.5 * myy * damping),
        (splats.opacity, m0 / splats.opacity.detach()),
        (colors, pulled.features[:count].t()),
    ]
    if pulled.features.shape[0] > count:
        z = splats.z.detach()
        flow.append((splats.z, pulled.features[count] - pulled.features[count + 1] / (z * z)))
    flow = [(output, gradient.to(output.dtype)) for output, gradient in flow if output.requires_grad]
    gradients: list[Optional[Tensor]] = [None] * len(leaves)
    if flow:
        targets = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
        found = torch.autograd.grad([o for o, _ in flow], targets, [g for _, g in flow], allow_unused=True)
        for k, gradient in zip(wanted, found):
            source = inputs[k]
            if gradient is not None and source is not None:
                gradients[k] = torch.zeros_like(source).index_copy_(0, plan.order, gradient)
    return gradients


def _position_gradient(splats: _Ellipses, pulled: _PairGradients) -> tuple[Tensor, Tensor]:
    """dL/d(x, y) in pixels: power = -(A dx^2 + C dy^2) / 2 - B dx dy."""
    conic_a, conic_b, conic_c = (entry.detach() for entry in _conic(splats))
    _, mx, my, _, _, _ = pulled.moments.unbind(0)
    return -(conic_a * mx + conic_b * my), -(conic_c * my + conic_b * mx)


def _screen_gradient(plan: _Plan, pulled: _PairGradients, means2D: Tensor) -> Tensor:
    """The gradient of `means2D`: pixel gradients in NDC units, v1's densification statistic."""
    geometry = plan.scene.geometry[:-1]
    half = (0.5 * int(plan.settings.image_width), 0.5 * int(plan.settings.image_height))
    aa, bb, cc = geometry[:, 2] / _LOG2E, geometry[:, 3] / _LOG2E, geometry[:, 4] / _LOG2E
    _, mx, my, _, _, _ = pulled.moments.unbind(0)
    columns = [(2 * aa * mx + bb * my) * half[0], (2 * cc * my + bb * mx) * half[1]]
    if pulled.absolute is not None and means2D.shape[1] > 2:
        both = [pulled.absolute[0] * half[0], pulled.absolute[1] * half[1]]
        columns += both if means2D.shape[1] > 3 else [both[0] + both[1]]
    gradient = torch.zeros_like(means2D)
    columns += [torch.zeros_like(columns[0])] * (means2D.shape[1] - len(columns))
    return gradient.index_copy_(0, plan.order, torch.stack(columns, dim=1).to(means2D.dtype))


def _apply(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    apply: Any = _Rasterize.apply
    found: tuple[Tensor, Tensor, Tensor, Tensor, Tensor] = apply(*arguments)
    return found


_apply_untraced: Any = getattr(torch, "_disable_dynamo", lambda function: function)(_apply)


# ---------------------------------------------------------------------------------------------------------------------
# Public interface.
# ---------------------------------------------------------------------------------------------------------------------


def _check(
    settings: GaussianRasterizationSettings,
    means3D: Tensor,
    means2D: Optional[Tensor],
    opacities: Tensor,
    shs: Optional[Tensor],
    colors_precomp: Optional[Tensor],
    scales: Optional[Tensor],
    rotations: Optional[Tensor],
    cov3D_precomp: Optional[Tensor],
    sizes: tuple[int, int] = (3, 6),
) -> None:
    """Raise for what v1 rejects, and for invalid shapes and types. `sizes`: of `scales` and `cov3D_precomp`."""
    if (shs is None) == (colors_precomp is None):
        raise ValueError(
            "Please provide exactly one of either SHs or precomputed colors: `shs` or `colors_precomp`."
        )
    pair = scales is not None or rotations is not None
    if pair == (cov3D_precomp is not None) or (pair and (scales is None or rotations is None)):
        raise ValueError(
            "Please provide exactly one of either scale/rotation pair or precomputed 3D covariance: "
            "`scales` with `rotations`, or `cov3D_precomp`."
        )
    if settings.antialiasing and settings.kernel_size is not None:
        raise ValueError(
            "`antialiasing` and `kernel_size` are two different compensations: choose one of them."
        )
    if settings.compact_box is not None and (not settings.compact_box > 0 or _moves_pixels(settings)):
        raise ValueError(
            "`compact_box` is a factor above 0, and FastGS, whose it is, knows no `subpixel_offset`."
        )
    if means3D.dim() != 2 or means3D.shape[1] != 3:
        raise ValueError(f"`means3D` must have dimensions (num_points, 3), not {tuple(means3D.shape)}.")
    if means3D.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"`means3D` must be float32 or float64, not {means3D.dtype}: convert it, e.g. with .float()."
        )
    points = means3D.shape[0]
    channels = settings.bg.numel()
    wanted_sh = (min(int(settings.sh_degree), 3) + 1) ** 2
    shapes = (
        ("means2D", means2D, (points, None)),
        ("opacities", opacities[:, None] if opacities.dim() == 1 else opacities, (points, 1)),
        ("shs", shs, (points, None, 3)),
        ("colors_precomp", colors_precomp, (points, channels)),
        ("scales", scales, (points, sizes[0])),
        ("rotations", rotations, (points, 4)),
        ("cov3D_precomp", cov3D_precomp, (points, sizes[1])),
    )
    for name, tensor, shape in shapes:
        if tensor is None:
            continue
        if tensor.dim() != len(shape) or any(w is not None and h != w for h, w in zip(tensor.shape, shape)):
            written = ", ".join("any" if w is None else str(w) for w in shape)
            raise ValueError(f"`{name}` must have the shape ({written}), not {tuple(tensor.shape)}.")
        if tensor.dtype != means3D.dtype or tensor.device != means3D.device:
            raise TypeError(
                f"`{name}` is {tensor.dtype} on {tensor.device}, `means3D` is {means3D.dtype} on {means3D.device}: "
                "all inputs need one dtype and one device."
            )
    if shs is not None and (shs.shape[1] < wanted_sh or channels != 3):
        raise ValueError(
            f"SH degree {settings.sh_degree} needs {wanted_sh} coefficients and a background of 3 numbers."
        )
    offset = settings.subpixel_offset
    size = (int(settings.image_height), int(settings.image_width), 2)
    if offset is not None and tuple(offset.shape) != size:
        raise ValueError(f"`subpixel_offset` must have the shape {size}, not {tuple(offset.shape)}.")


def _view_depth(settings: GaussianRasterizationSettings, positions: Tensor) -> Tensor:
    view = settings.viewmatrix.detach().to(device=positions.device, dtype=_geometry_dtype(positions))
    return (positions.detach().to(view.dtype) @ view[:3, 2] + view[3, 2]).to(positions.dtype)


def rasterize(
    settings: GaussianRasterizationSettings,
    means3D: Tensor,
    means2D: Optional[Tensor],
    opacities: Tensor,
    shs: Optional[Tensor] = None,
    colors_precomp: Optional[Tensor] = None,
    scales: Optional[Tensor] = None,
    rotations: Optional[Tensor] = None,
    cov3D_precomp: Optional[Tensor] = None,
    *,
    budget_bytes: int = 256 << 20,
) -> Rendered:
    """Render Gaussians: color, depth, inverse depth and alpha.

    Args:
        settings: camera and options.
        means3D: [P, 3] world positions, float32 or float64; every other tensor has the same dtype and device.
        means2D: [P, 3] (or [P, 2], or FastGS's [P, 4]) leaf that only receives the densification statistic, or None.
        opacities: [P, 1] or [P], after the sigmoid.
        shs: [P, M, 3] SH coefficients, M >= (sh_degree + 1)^2; or
        colors_precomp: [P, C] colors, with a background of C numbers.
        scales, rotations: [P, 3] after exp, [P, 4] quaternions (w, x, y, z), normalized by the caller; or
        cov3D_precomp: [P, 6] upper triangles xx, xy, xz, yy, yz, zz.
        budget_bytes: bound on the temporary pixel buffers of a pass. On a CPU less than the default is used anyway.

    Raises:
        ValueError, TypeError: conflicting arguments or other shapes, non-finite inputs with `debug`.
        RuntimeError: with `prefiltered`, a Gaussian behind the near plane.
    """
    inputs = (means3D, means2D, opacities, shs, colors_precomp, scales, rotations, cov3D_precomp)
    _check(settings, *inputs)
    if settings.debug:
        names = ("means3D", "opacities", "shs", "colors_precomp", "scales", "rotations", "cov3D_precomp")
        for name, tensor in zip(names, (means3D, *inputs[2:])):
            if tensor is not None and _non_finite_rows((tensor.detach(),)) is not None:
                raise ValueError(
                    f"`{name}` holds NaN or infinite values. Without `debug` those Gaussians are left out."
                )
    if settings.prefiltered and bool((_view_depth(settings, means3D) <= _NEAR).any()):
        raise RuntimeError("A point is behind the near plane although `prefiltered` promises that none is.")
    if means2D is None:
        means2D = means3D.new_zeros(means3D.shape)
    inputs = (means3D, means2D, *inputs[2:])
    found = _by_cuda_kernels(settings, inputs)
    if found is not None:
        return found
    # Chunks depend on the data and cannot be traced. The compiler is imported only where it runs.
    apply = _apply_untraced if "torch._dynamo" in sys.modules else _apply
    return Rendered(*apply(settings, budget_bytes, *inputs))


def _by_cuda_kernels(
    settings: GaussianRasterizationSettings, inputs: Sequence[Optional[Tensor]]
) -> Optional[Rendered]:
    """The same by CUDA kernels, where they lie beside this file and serve these settings and tensors; else None."""
    means3D = inputs[0]
    if means3D is None or not means3D.is_cuda:
        return None
    try:
        from splatfix.kernels.nvrtc import NoKernels, fall_back, ran, wanted
        from splatfix.kernels.rasterizer_cuda import rasterize as by_kernels
        from splatfix.kernels.rasterizer_cuda import refusal
    except ImportError:  # a copy of this file alone
        return None
    if not wanted(means3D):
        return None
    reason = refusal(settings)
    try:
        found = None if reason else Rendered(*by_kernels(settings, *inputs))
    except NoKernels as error:
        found, reason = None, str(error)
    if found is None:
        fall_back("rasterizer", reason)
    else:
        ran["rasterizer"] = "nvrtc"
    return found


class GaussianRasterizer(nn.Module):
    """The class of `diff_gaussian_rasterization`, with the same calls."""

    def __init__(self, raster_settings: GaussianRasterizationSettings) -> None:
        super().__init__()
        self.raster_settings = raster_settings

    def markVisible(self, positions: Tensor) -> Tensor:
        """[P, 3] positions -> [P] bool, in front of v1's near plane (v1's only culling)."""
        with torch.no_grad():
            return _view_depth(self.raster_settings, positions) > _NEAR

    def forward(
        self,
        means3D: Tensor,
        means2D: Tensor,
        opacities: Tensor,
        shs: Optional[Tensor] = None,
        colors_precomp: Optional[Tensor] = None,
        scales: Optional[Tensor] = None,
        rotations: Optional[Tensor] = None,
        cov3D_precomp: Optional[Tensor] = None,
    ) -> tuple[Tensor, Tensor]:
        """v1's call: color [C, H, W] and radii [P] int32. Arguments as for `rasterize`."""
        rendered = rasterize(
            self.raster_settings,
            means3D,
            means2D,
            opacities,
            shs,
            colors_precomp,
            scales,
            rotations,
            cov3D_precomp,
        )
        return rendered.color, rendered.radii
