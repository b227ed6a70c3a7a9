"""A naive float64 drawing of what gsplat lists: every Gaussian of a tile against every pixel of it, plain autograd.

From the contract in `gsplat_csrc.py` alone; it shares no code with what it judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Drawn(NamedTuple):
    """Images [I, H, W, ...]; the last four are for surfels, but the last."""

    colors: Tensor
    alphas: Tensor
    last_ids: Tensor
    normals: Tensor
    distortion: Tensor
    median: Tensor
    median_ids: Tensor
    blended: list[tuple[int, int]]  # (Gaussian of the image, pixel), by pixel, front to back
    copies: list[tuple[Tensor, Tensor]]  # flat ids [K] and centers [P, K, 2], one copy for each pixel


def _falloff(shape: Tensor, center: Tensor, pixel: Tensor) -> tuple[Tensor, Tensor]:
    """Sigma [P, K] at pixels [P, 2], and where there is one."""
    offset = center - pixel[:, None]
    if shape.dim() == 2:  # conics [K, 3]
        a, b, c = shape.unbind(1)
        x, y = offset.unbind(-1)
        sigma = 0.5 * (a * x**2 + c * y**2) + b * x * y
        return sigma, sigma >= 0
    u, v, w = shape.unbind(1)
    across = torch.linalg.cross(pixel[:, None, :1] * w - u, pixel[:, None, 1:] * w - v)
    there = across[..., 2] != 0
    depth = torch.where(there, across[..., 2], 1.0)
    disc = (across[..., 0] / depth) ** 2 + (across[..., 1] / depth) ** 2
    low_pass = 2.0 * (offset**2).sum(-1)
    return 0.5 * torch.where(disc <= low_pass, disc, low_pass), there


def draw(
    means2d: Tensor,
    shapes: Tensor,
    colors: Tensor,
    opacities: Tensor,
    width: int,
    height: int,
    tile_size: int,
    offsets: Tensor,
    flatten_ids: Tensor,
    backgrounds: Tensor | None = None,
    masks: Tensor | None = None,
    normals: Tensor | None = None,
    ranks: tuple[int, int] | None = None,
    transmittances: Tensor | None = None,
) -> Drawn:
    """[I, N, ...] Gaussians (conics) or surfels (transforms)."""
    images, rows, columns = offsets.shape
    count, channels = means2d.shape[1], colors.shape[-1]
    flat = [item.flatten(0, 1) for item in (means2d, shapes, colors, opacities)]
    if normals is None:
        normals = torch.zeros(*means2d.shape[:2], 3, dtype=means2d.dtype)
    normals = normals.flatten(0, 1)
    bounds = [*offsets.flatten().tolist(), len(flatten_ids)]
    pieces: dict[int, Tensor] = {}
    blended: list[tuple[int, int, int]] = []
    copies: list[tuple[Tensor, Tensor]] = []
    for tile in range(images * rows * columns):
        image, row, column = tile // (rows * columns), tile // columns % rows, tile % columns
        ys = range(row * tile_size, min(height, (row + 1) * tile_size))
        xs = range(column * tile_size, min(width, (column + 1) * tile_size))
        places = [(image * height + y) * width + x for y in ys for x in xs]
        if not places:
            continue
        pixel = torch.tensor([[x + 0.5, y + 0.5] for y in ys for x in xs], dtype=torch.float64)
        first, last = bounds[tile], bounds[tile + 1]
        if ranks is not None:
            first, last = first + ranks[0], min(last, first + ranks[1])
        if masks is not None and not bool(masks.flatten()[tile]):
            last = first
        ids = flatten_ids[first : max(first, last)].long()
        center = flat[0][ids].expand(len(places), -1, 2) * 1.0
        copies.append((ids, center))
        sigma, there = _falloff(flat[1][ids], center, pixel)
        alpha = (flat[3][ids] * torch.exp(-sigma)).clamp_max(0.999)
        alpha = torch.where(there & (alpha >= 1 / 255), alpha, 0.0)
        begin = torch.ones(len(places), 1, dtype=torch.float64)
        if transmittances is not None:
            begin = transmittances.flatten()[places][:, None].double()
        after = begin * torch.cumprod(1.0 - alpha, 1)
        ahead = torch.cat([begin, after[:, :-1]], 1)[:, : len(ids)]
        weight = torch.where(after > 1e-4, alpha * ahead, 0.0)
        rank = torch.arange(len(ids))
        used = weight.detach() > 0
        at = torch.where(used, rank, -1).amax(1) if len(ids) else torch.full((len(places),), -1)
        half = torch.where(used & (ahead > 0.5), rank, -1).amax(1) if len(ids) else at
        depth = flat[2][ids][:, -1]
        # the sum over pairs of weight * weight * distance, by sums of what lies before: all pairs took 14 GB
        before, depth_before = (torch.cumsum(item, 1) - item for item in (weight, weight * depth))
        distortion = 2.0 * (weight * (depth * before - depth_before)).sum(1, keepdim=True)
        fields = [
            weight @ flat[2][ids],
            weight.sum(1, keepdim=True),
            weight @ normals[ids],
            distortion,
            torch.where(half >= 0, depth[half.clamp_min(0)] if len(ids) else pixel[:, 0] * 0, 0.0)[:, None],
            torch.where(at >= 0, first + at, 0)[:, None].double(),
            torch.where(half >= 0, first + half, 0)[:, None].double(),
        ]
        pieces.update(zip(places, torch.cat(fields, 1), strict=True))
        for spot, k in used.nonzero().tolist():
            blended.append((places[spot], k, int(ids[k]) % count))
    whole = torch.stack([pieces[place] for place in range(images * height * width)])
    image = whole.view(images, height, width, -1)
    color, alpha, normal, distortion, median, last_ids, median_ids = image.split(
        [channels, 1, 3, 1, 1, 1, 1], dim=-1
    )
    if backgrounds is not None:
        color = color + (1.0 - alpha) * backgrounds[:, None, None]
    ids = [item[..., 0].detach().to(torch.int32) for item in (last_ids, median_ids)]
    listed = [(gaussian, place) for place, _, gaussian in sorted(blended)]
    return Drawn(color, alpha, ids[0], normal, distortion, median, ids[1], listed, copies)


def absolute(copies: Sequence[tuple[Tensor, Tensor]], loss: Tensor, count: int) -> Tensor:
    """[count, 2] sums over pixels of the absolute gradients of the centers."""
    total = torch.zeros(count, 2, dtype=torch.float64)
    found = torch.autograd.grad(loss, [center for _, center in copies], retain_graph=True, allow_unused=True)
    for (ids, _), gradient in zip(copies, found, strict=True):
        if gradient is not None:
            total.index_add_(0, ids, gradient.abs().sum(0))
    return total
