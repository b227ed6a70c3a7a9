"""Scenes for the contract with gsplat: in the world, and in the image."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from splatfix.kernels import gsplat_csrc


class World(NamedTuple):
    """Gaussians and cameras, float64."""

    means: Tensor  # [N, 3]
    quats: Tensor  # [N, 4], of any length
    scales: Tensor  # [N, 3]
    opacities: Tensor  # [N]
    viewmats: Tensor  # [C, 4, 4]
    Ks: Tensor  # [C, 3, 3]

    def to(self, dtype: torch.dtype) -> World:
        return World(*(item.to(dtype) for item in self))


SIZE = (57, 43)


def world(count: int = 80, cameras: int = 2, seed: int = 1) -> World:
    """Most of the first Gaussians are hard: behind a camera, beside the image, on the near plane, flat, a point, huge."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    means, scales = normal(count, 3), (0.5 * normal(count, 3) - 2.5).exp()
    hard_means = [[0, 0, -9], [9, 0, 0], [0, -30, 1], [2.5, 0.1, -3.7], [0.1, 0.2, -3.79], [0, 0, 400]]
    for k, hard in enumerate(hard_means[:count]):
        means[k] = torch.tensor(hard, dtype=torch.float64)
    hard_scales = [[0.2, 0.2, 1e-6], [1e-5, 1e-5, 1e-5], [3.0, 2.0, 2.5], [2.0, 1e-3, 1e-3]]
    for k, hard in enumerate(hard_scales, start=len(hard_means)):
        if k < count:
            scales[k] = torch.tensor(hard, dtype=torch.float64)
    viewmats = torch.eye(4, dtype=torch.float64).repeat(cameras, 1, 1)
    for camera in range(cameras):
        angle = torch.tensor(0.15 * camera, dtype=torch.float64)
        c, s = angle.cos(), angle.sin()
        viewmats[camera, :3, :3] = torch.tensor([[c, 0, s], [0, 1, 0], [-s, 0, c]])
        viewmats[camera, :3, 3] = torch.tensor([0.1 * camera, -0.05, 4.0 + 0.3 * camera])
    Ks = torch.tensor([[52.0, 0, 27.3], [0, 48.0, 22.1], [0, 0, 1]], dtype=torch.float64)
    opacities = torch.sigmoid(normal(count))
    opacities[:: max(1, count // 5)] = 1.0
    return World(means, normal(count, 4), scales, opacities, viewmats, Ks.repeat(cameras, 1, 1))


def tiles_of(size: tuple[int, int], edge: int) -> tuple[int, int]:
    """Columns and rows of tiles."""
    return -(-size[0] // edge), -(-size[1] // edge)


def listed(
    means2d: Tensor, radii: Tensor, depths: Tensor, size: tuple[int, int], edge: int
) -> tuple[Tensor, Tensor]:
    """Offsets of the tiles of every image [I, rows, columns], and flat ids, as gsplat has them made."""
    images, tiles = len(depths), tiles_of(size, edge)
    _, ids, flatten_ids = gsplat_csrc.intersect_tile(
        means2d, radii, depths, None, None, images, edge, *tiles, True, False
    )
    return gsplat_csrc.intersect_offset(ids, images, *tiles), flatten_ids


class Flat(NamedTuple):
    """Gaussians in the image, [I, N, ...], float64."""

    means2d: Tensor
    conics: Tensor
    colors: Tensor
    opacities: Tensor
    radii: Tensor  # int32
    depths: Tensor
    backgrounds: Tensor  # [I, D]


def flat(
    count: int,
    size: tuple[int, int],
    channels: int = 3,
    images: int = 1,
    spread: tuple[float, float] = (0.7, 6.0),
    opacity: float | None = None,
    seed: int = 3,
) -> Flat:
    """On the image and around its edges; `spread` is the range of the sigmas in pixels, of both axes apart."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    edges = torch.tensor(size, dtype=torch.float64)
    means2d = (uniform(images, count, 2) * 1.4 - 0.2) * edges
    low, high = spread
    sigmas = low * (high / low) ** uniform(images, count, 2)
    angle = 6.3 * uniform(images, count)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1).view(images, count, 2, 2)
    covariance = turn @ torch.diag_embed(sigmas**2) @ turn.transpose(-1, -2)
    inverse = torch.linalg.inv(covariance)
    conics = torch.stack([inverse[..., 0, 0], inverse[..., 0, 1], inverse[..., 1, 1]], -1)
    radii = torch.ceil(3.33 * covariance.diagonal(dim1=-2, dim2=-1).sqrt()).to(torch.int32)
    opacities = uniform(images, count) if opacity is None else torch.full((images, count), opacity).double()
    radii[:, ::7] = 0  # culled
    colors, depths = uniform(images, count, channels), 1.0 + 5.0 * uniform(images, count)
    return Flat(means2d, conics, colors, opacities, radii, depths, uniform(images, channels))
