"""Tiles of gsplat: which Gaussians reach them, and the smaller cells in which they are drawn here, for `gsplat_csrc.py`."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from splatfix.kernels.binning import AREA, TILE, Pairs, arange_per_row, sorted_by_tile
from splatfix.kernels.gsplat_dispatch import served
from splatfix.kernels.projection import geometry_dtype


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
    center = means2d.reshape(-1, 2).float() / tile_size
    reach = radii.reshape(-1, 2).float() / tile_size
    edges = center.new_tensor([tile_width, tile_height])
    first = torch.minimum(torch.floor(center - reach).clamp_min(0.0), edges).to(torch.int64)
    last = torch.minimum(torch.ceil(center + reach).clamp_min(0.0), edges).to(torch.int64)
    across, down = (last - first).clamp_min(0).unbind(1)
    drawn = (reach > 0).all(1) & torch.isfinite(center).all(1)
    count = across * down * drawn
    bits = depths.reshape(-1).float().view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    if image_ids is None:
        per_image = max(1, means2d.shape[-2])
        image_ids = torch.div(torch.arange(len(count), device=count.device), per_image, rounding_mode="floor")

    # front to back first: there are fewer Gaussians than pairs, and the second sort keeps the order
    order = count.nonzero().view(-1)
    if sort:
        order = order.index_select(0, torch.sort(bits.index_select(0, order), stable=True)[1])
    row, start = arange_per_row(count.index_select(0, order))
    owner = order.index_select(0, row)
    rank = torch.arange(len(owner), device=owner.device) - start.index_select(0, row)
    columns = across.index_select(0, owner)
    left, top = first.index_select(0, owner).unbind(1)
    tile = (top + torch.div(rank, columns, rounding_mode="floor")) * tile_width + left + rank % columns
    place = (image_ids.index_select(0, owner) << (tile_width * tile_height).bit_length()) | tile
    if sort:
        place, order = torch.sort(place, stable=True)
        owner = owner.index_select(0, order)
    isect_ids = (place << 32) | bits.index_select(0, owner)
    return count.to(torch.int32).view(depths.shape), isect_ids, owner.to(torch.int32)


def intersect_offset(isect_ids: Tensor, images: int, tile_width: int, tile_height: int) -> Tensor:
    """Sorted ids -> first pair of each tile, [images, tile_height, tile_width] int32."""
    tiles = tile_width * tile_height
    image = torch.arange(images, device=isect_ids.device)[:, None] << tiles.bit_length()
    least = (image | torch.arange(tiles, device=isect_ids.device)) << 32
    return torch.searchsorted(isect_ids, least).to(torch.int32).view(images, tile_height, tile_width)


# ---------------------------------------------------------------------------------------------------------------------
# Cells
# ---------------------------------------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """Images, their tiles, and the pairs (Gaussian, tile)."""

    width: int
    height: int
    tile_size: int
    offsets: Tensor  # [..., rows, columns] first pair of each tile
    flatten_ids: Tensor  # [n_isects]

    @property
    def pixels(self) -> int:
        """Of all images."""
        rows, columns = self.offsets.shape[-2:]
        return self.offsets.numel() // max(1, rows * columns) * self.height * self.width


class Cells(NamedTuple):
    """What is drawn at once: tiles are cut into cells of at most 8x8 pixels. Those that something reaches, fullest first."""

    pairs: Pairs  # with the cells
    isect: Tensor  # [E] of each pair: its place in `flatten_ids`
    pixel: (
        Tensor  # [N, 64] of each cell: its pixels among those of all images; behind the last where it is none
    )
    image: Tensor  # [N]
    center: Tensor  # [N, 2] x, y, in the precision of the geometry


Reaches = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of Gaussians [M] and the first and last pixel centers [M, S, 2] of cells each: whether it may be seen there, [M, S]."""


def cells_of(
    grid: Grid,
    reaches: Reaches,
    like: Tensor,
    masks: Optional[Tensor] = None,
    ranks: Optional[Tuple[int, int]] = None,
) -> Cells:
    """The cells of the tiles, and which Gaussians reach them.

    Args:
        like: a tensor of the Gaussians, for precision and device.
        masks: [..., rows, columns], False for tiles to leave out.
        ranks: of each tile only the pairs from the first to before the second.
    """
    rows, columns = grid.offsets.shape[-2:]
    edge = (grid.tile_size + TILE - 1) // TILE
    starts = grid.offsets.reshape(-1).to(torch.int64)
    ends = torch.cat([starts[1:], starts.new_tensor([len(grid.flatten_ids)])])
    if ranks is not None:
        starts, ends = starts + ranks[0], torch.minimum(ends, starts + ranks[1])
    counts = (ends - starts).clamp_min(0)
    if masks is not None:
        counts = counts * masks.reshape(-1)
    tile, before = arange_per_row(counts)
    isect = torch.arange(len(tile), device=tile.device) + (starts - before).index_select(0, tile)

    first, last = _corners(grid, torch.arange(len(starts) * edge * edge, device=tile.device), like)
    of_tile = (len(starts), edge * edge, 2)
    gaussian = grid.flatten_ids.index_select(0, isect).to(torch.int64)
    first, last = first.view(of_tile), last.view(of_tile)
    reached = reaches(gaussian, first.index_select(0, tile), last.index_select(0, tile))
    reached &= (last >= first).all(2).index_select(0, tile)
    pair, part = reached.nonzero().unbind(1)
    cell = tile.index_select(0, pair) * (edge * edge) + part
    pairs = sorted_by_tile(isect.index_select(0, pair), cell, len(starts) * edge * edge)
    isect = pairs.gaussian
    pairs = pairs._replace(gaussian=grid.flatten_ids.index_select(0, isect))

    first, last = _corners(grid, pairs.tile, like)
    center = first + 0.5 * (TILE - 1)
    image = torch.div(pairs.tile, rows * columns * edge * edge, rounding_mode="floor")
    x, y = (first[:, None] + pixel_offsets(like).t() + 0.5 * (TILE - 1)).unbind(2)
    inside = (x <= last[:, :1]) & (y <= last[:, 1:])
    pixel = (image[:, None] * grid.height + y.to(torch.int64)) * grid.width + x.to(torch.int64)
    return Cells(pairs, isect, torch.where(inside, pixel, torch.full_like(pixel, grid.pixels)), image, center)


def pixel_offsets(like: Tensor) -> Tensor:
    """[2, 64] x, y of a cell's pixels from its center."""
    steps = torch.arange(TILE, device=like.device).to(like.dtype) - 0.5 * (TILE - 1)
    v, u = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack([u.reshape(-1), v.reshape(-1)])


def _corners(grid: Grid, cell: Tensor, like: Tensor) -> Tuple[Tensor, Tensor]:
    """The first and last pixel centers [N, 2] (x, y) of cells [N]; the last before the first where a cell has no pixel."""
    rows, columns = grid.offsets.shape[-2:]
    edge = (grid.tile_size + TILE - 1) // TILE
    tile, part = torch.div(cell, edge * edge, rounding_mode="floor"), cell % (edge * edge)
    along = torch.stack([tile % columns, torch.div(tile, columns, rounding_mode="floor") % rows], dim=1)
    within = torch.stack([part % edge, torch.div(part, edge, rounding_mode="floor")], dim=1)
    first = along * grid.tile_size + within * TILE
    last = torch.minimum(first + TILE, (along + 1) * grid.tile_size)
    last = torch.minimum(last, last.new_tensor([grid.width, grid.height])) - 1
    geometry = geometry_dtype(like)
    return first.to(geometry) + 0.5, last.to(geometry) + 0.5


def to_pixels(grid: Grid, cells: Cells, values: Tensor) -> Tensor:
    """[N, D, 64] of cells -> [..., H, W, D] of pixels, zero where no cell is."""
    channels = values.shape[1]
    flat = values.new_zeros(grid.pixels + 1, channels)
    flat.index_copy_(0, cells.pixel.view(-1), values.transpose(1, 2).reshape(-1, channels))
    return flat[:-1].view(*grid.offsets.shape[:-2], grid.height, grid.width, channels)


def to_cells(cells: Cells, image: Tensor) -> Tensor:
    """The inverse of `to_pixels`: zero where a cell has no pixel."""
    channels = image.shape[-1]
    flat = torch.cat([image.reshape(-1, channels), image.new_zeros(1, channels)])
    return flat.index_select(0, cells.pixel.view(-1)).view(-1, AREA, channels).transpose(1, 2).contiguous()
