"""Which 8x8-pixel tiles an ellipse covers, and between tiles and images. The rules are told in `rasterizer.py`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from splatfix.kernels.projection import NEAR, Ellipses, ViewCamera

BIN = 16  # v1's tile edge: decides how far a Gaussian may reach
TILE = 8  # our raster tile edge, divides BIN
AREA = TILE * TILE


class Reach(NamedTuple):
    """v1's footprint: radius [P] (0 = culled) and the rectangle of 16x16 tiles, half open, each [P] int64 unless said."""

    radius: Tensor  # int32
    left: Tensor
    right: Tensor
    top: Tensor
    bottom: Tensor


def bins_of(low: Tensor, edge: int) -> Tensor:
    """Tile numbers of 16 pixels, truncated as (int) does, within an image of `edge` pixels."""
    count = (edge + BIN - 1) // BIN
    return torch.nan_to_num(low / BIN).clamp(0, count).to(torch.int64)


def bin_range(middle: Tensor, half: Tensor, beyond: int, edge: int) -> tuple[Tensor, Tensor]:
    """The tiles, half open, from `half` before the middle to `half` behind it; `beyond` rounds the end up."""
    return bins_of(middle - half, edge), bins_of(middle + half + beyond, edge)


def find_reach(camera: ViewCamera, splats: Ellipses, precision: torch.dtype) -> Reach:
    """`precision` is that of the input, in which v1 compares depths."""
    mid = 0.5 * (splats.a + splats.c)
    largest = mid + torch.sqrt((mid * mid - splats.det).clamp_min(0.1))
    radius = torch.ceil(3.0 * torch.sqrt(largest))
    visible = (splats.z.to(precision) > NEAR) & (splats.det != 0) & torch.isfinite(radius)
    if camera.compact_box is None:
        left, right = bin_range(splats.x, radius, BIN - 1, camera.width)
        top, bottom = bin_range(splats.y, radius, BIN - 1, camera.height)
        visible = visible & ((right - left) * (bottom - top) > 0)
    else:
        left, top = torch.zeros_like(radius, dtype=torch.int64), torch.zeros_like(radius, dtype=torch.int64)
        right, bottom = left + _whole_bins(camera.width), top + _whole_bins(camera.height)
        owner, _ = _compact_tiles(camera, splats)
        visible = visible & (torch.bincount(owner, minlength=radius.numel()) > 0)
    # the largest number that fits int32 and is exact in float32
    radius = torch.where(visible, radius, torch.zeros_like(radius)).clamp_max(2147483520.0)
    return Reach(radius.to(torch.int32), left, right, top, bottom)


def _whole_bins(edge: int) -> int:
    return (edge + BIN - 1) // BIN


def _compact_tiles(camera: ViewCamera, splats: Ellipses) -> tuple[Tensor, Tensor]:
    """The 16x16 tiles that an ellipse of `compact_box` touches: Gaussian and tile number, sorted by both, int64.

    The square of a tile is half open and holds its right and lower border's pixels' cells, as FastGS (after Speedy-Splat,
    Hanson et al. 2025) cuts them: 16 i to 16 i + 16. Within a row of tiles the ellipse is an interval in x.
    """
    assert camera.compact_box is not None
    level = camera.compact_box * 2.0 * torch.log(255.0 * splats.opacity)
    drawn = (splats.det > 0) & (splats.a > 0) & (splats.c > 0) & (level >= 0) & (splats.z > 0)
    level = torch.where(drawn, level, torch.zeros_like(level))
    half_x, half_y = torch.sqrt(level * splats.a), torch.sqrt(level * splats.c)
    first_row, last_row = bin_range(splats.y, half_y, BIN, camera.height)
    first_column, last_column = bin_range(splats.x, half_x, BIN, camera.width)
    drawn = drawn & torch.isfinite(splats.x + splats.y + half_x + half_y) & (last_column > first_column)
    rows = torch.where(drawn, last_row - first_row, torch.zeros_like(first_row))

    owner, row0 = arange_per_row(rows)
    row = torch.arange(owner.numel(), device=owner.device) + (first_row - row0).index_select(0, owner)
    one = Ellipses(*(field.index_select(0, owner) for field in splats))
    level, half_y = level.index_select(0, owner), half_y.index_select(0, owner)
    top = torch.maximum((row * BIN).to(one.y.dtype) - one.y, -half_y)
    bottom = torch.minimum((row * BIN + BIN).to(one.y.dtype) - one.y, half_y)
    peak = one.b * torch.sqrt(level / one.a)

    def edge(peak_y: Tensor, sign: float) -> Tensor:
        y = torch.minimum(torch.maximum(peak_y, top), bottom)
        return (
            one.x
            + one.b / one.c * y
            + sign * torch.sqrt((one.det / one.c * (level - y * y / one.c)).clamp_min(0.0))
        )

    left = torch.maximum(bins_of(edge(-peak, -1.0), camera.width), first_column.index_select(0, owner))
    right = torch.minimum(bins_of(edge(peak, 1.0) + BIN, camera.width), last_column.index_select(0, owner))
    line, start = arange_per_row((right - left).clamp_min(0))
    first = row * _whole_bins(camera.width) + left - start
    tile = torch.arange(line.numel(), device=line.device) + first.index_select(0, line)
    return owner.index_select(0, line), tile


def _within_compact_box(camera: ViewCamera, splats: Ellipses, gaussian: Tensor, tile: Tensor) -> Tensor:
    """Which of the pairs (Gaussian, 8x8 tile) lie in a 16x16 tile that FastGS draws the Gaussian in; [E] bool."""
    bins_x, bins_y = _whole_bins(camera.width), _whole_bins(camera.height)
    tiles_x, ratio = (camera.width + TILE - 1) // TILE, BIN // TILE
    owner, touched = _compact_tiles(camera, splats)
    keys = owner * (bins_x * bins_y) + touched  # ascending, as `_compact_tiles` lists them
    row = torch.div(tile, tiles_x * ratio, rounding_mode="floor")
    coarse = row * bins_x + torch.div(tile % tiles_x, ratio, rounding_mode="floor")
    pair_keys = gaussian * (bins_x * bins_y) + coarse
    if not keys.numel():
        return torch.zeros_like(pair_keys, dtype=torch.bool)
    nearest = torch.searchsorted(keys, pair_keys).clamp_max(keys.numel() - 1)
    return keys.index_select(0, nearest) == pair_keys


class Pairs(NamedTuple):
    """(Gaussian, tile) pairs sorted by tile, then depth; tiles in order of falling pair count."""

    gaussian: Tensor  # [E] index into the depth-sorted visible Gaussians
    tile: Tensor  # [N] int64, tile number of every non-empty tile
    start: Tensor  # [N] int64, first pair
    length: Tensor  # [N] int64, pairs of the tile, falling


def arange_per_row(count: Tensor) -> tuple[Tensor, Tensor]:
    """For row lengths [R]: the row of every element and the first element of every row."""
    ends = torch.cumsum(count, 0)
    row = torch.repeat_interleave(torch.arange(count.numel(), device=count.device), count)
    return row, ends - count


def list_pairs(camera: ViewCamera, splats: Ellipses, reach: Reach, margin: float) -> Pairs:
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
    first_y = torch.maximum(torch.ceil(splats.y - half_y - margin), (reach.top * BIN).to(level.dtype))
    last_y = torch.floor(splats.y + half_y + margin)
    last_y = torch.minimum(last_y, (reach.bottom * BIN - 1).clamp_max(camera.height - 1).to(level.dtype))
    band0 = torch.div(first_y, TILE, rounding_mode="floor").to(torch.int64)
    band1 = torch.div(last_y, TILE, rounding_mode="floor").to(torch.int64)
    bands = torch.where(last_y >= first_y, band1 - band0 + 1, torch.zeros_like(band0))

    owner, row0 = arange_per_row(bands)
    band = torch.arange(owner.numel(), device=owner.device) + (band0 - row0).index_select(0, owner)

    def per_band(value: Tensor) -> Tensor:
        return value.index_select(0, owner)

    # In a band the right edge peaks at the ellipse's rightmost point, or at the end of the band nearest to it.
    top = torch.maximum((band * TILE).to(level.dtype), per_band(first_y)) - per_band(splats.y) - margin
    bottom = (
        torch.minimum((band * TILE + TILE - 1).to(level.dtype), per_band(last_y))
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
    first_x = torch.maximum(torch.ceil(x + low - margin), per_band(reach.left * BIN).to(x.dtype))
    last_x = torch.minimum(
        torch.floor(x + high + margin),
        per_band((reach.right * BIN - 1).clamp_max(camera.width - 1)).to(x.dtype),
    )
    column0 = torch.div(first_x, TILE, rounding_mode="floor").to(torch.int64)
    column1 = torch.div(last_x, TILE, rounding_mode="floor").to(torch.int64)
    columns = torch.where(last_x >= first_x, column1 - column0 + 1, torch.zeros_like(column0))

    tiles_x = (camera.width + TILE - 1) // TILE
    tiles_y = (camera.height + TILE - 1) // TILE
    row, pair0 = arange_per_row(columns)
    first_tile = band * tiles_x + column0 - pair0
    tile = torch.arange(row.numel(), device=row.device) + first_tile.index_select(0, row)
    gaussian = owner.index_select(0, row)
    if camera.compact_box is not None:
        kept = _within_compact_box(camera, splats, gaussian, tile).nonzero().view(-1)
        gaussian, tile = gaussian.index_select(0, kept), tile.index_select(0, kept)
    return sorted_by_tile(gaussian.to(torch.int32), tile.to(torch.int32), tiles_x * tiles_y)


def sorted_by_tile(gaussian: Tensor, tile: Tensor, tiles: int) -> Pairs:
    """Pairs [E] that are listed front to back, sorted by tile; the longest tiles first, so that a chunk ends together."""
    tile, order = torch.sort(tile, stable=True)
    counts = torch.bincount(tile, minlength=tiles)
    starts = torch.cumsum(counts, 0) - counts
    count, by_count = torch.sort(counts, descending=True, stable=True)
    filled = int((count > 0).sum())
    by_count = by_count[:filled]
    return Pairs(gaussian.index_select(0, order), by_count, starts.index_select(0, by_count), count[:filled])


def to_image(per_tile: Tensor, plan_tiles: tuple[int, int], tile: Tensor, height: int, width: int) -> Tensor:
    """[N, C, 64] sums of the non-empty tiles -> [C, H, W], zero elsewhere."""
    rows, columns = plan_tiles
    channels = per_tile.shape[1]
    full = per_tile.new_zeros(rows * columns, channels, AREA).index_copy_(0, tile, per_tile)
    image = full.view(rows, columns, channels, TILE, TILE).permute(2, 0, 3, 1, 4)
    return image.reshape(channels, rows * TILE, columns * TILE)[:, :height, :width]


def to_tiles(image: Tensor, plan_tiles: tuple[int, int], tile: Tensor) -> Tensor:
    """The inverse of `to_image`: [C, H, W] -> [N, C, 64], zero outside the image."""
    rows, columns = plan_tiles
    channels, height, width = image.shape
    padded = nn.functional.pad(image, (0, columns * TILE - width, 0, rows * TILE - height))
    full = padded.view(channels, rows, TILE, columns, TILE).permute(1, 3, 0, 2, 4)
    return full.reshape(rows * columns, channels, AREA).index_select(0, tile)
