"""What rasterizers of the family give back beside the image, composed from `rasterizer.py` and `contributions.py`.

Forks of Inria's rasterizer add maps (depth, alpha), features that are blended with the weights of the colors, gradients of the
camera's pose and sums per Gaussian. All of it stands on one drawing:

Maps      depth is the sum of z alpha T, not divided by alpha; alpha the sum of alpha T.
Features  [P, F] numbers a Gaussian, drawn as channels behind the colors over a black background. The gradient is the derivative:
          it reaches opacities and shapes too.
Normals   of a Gaussian: its shortest axis in the world, turned to the camera (diff_gauss); drawn as features are, not normalized.
Pose      theta and rho, the rotation and translation of Exp(rho, theta) W with W the world-to-view matrix: MonoGS (Matsuki et al.
          2024) optimizes them and calls with zeros. A camera that moves is a world that moves the other way: the centers by
          R^T (rho + theta x point in view), the orientations by R^T theta, what SH sees by R^T rho. Values are ignored.
absolute  its gradient [:, :2] gets the sums over pixels of |dL/dx| and |dL/dy| (AbsGS, Ye et al. 2024).
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from splatfix.kernels.blending import untraced
from splatfix.kernels.contributions import Contributions, contributions
from splatfix.kernels.projection import GaussianRasterizationSettings, Gaussians, colors_of
from splatfix.kernels.rasterizer import rasterize

__all__ = ["Composite", "composite"]


class Composite(NamedTuple):
    """All but `radii` and `sums` are differentiable.

    Attributes:
        color: [C, H, W], background included.
        radii: [P] int32, pixels; 0 where culled.
        invdepth, alpha, depth: [1, H, W], as of `rasterize`.
        features: a map [F, H, W] for each of `features`.
        normals: [3, H, W], the sum of n alpha T; None where they were not asked for.
        sums: per Gaussian; None where they were not asked for.
    """

    color: Tensor
    radii: Tensor
    invdepth: Tensor
    alpha: Tensor
    depth: Tensor
    features: tuple[Tensor, ...]
    normals: Optional[Tensor]
    sums: Optional[Contributions]


@untraced
def composite(
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
    features: Sequence[Tensor] = (),
    theta: Optional[Tensor] = None,
    rho: Optional[Tensor] = None,
    absolute: Optional[Tensor] = None,
    normals: Optional[Tensor] = None,
    with_normals: bool = False,
    with_sums: bool = False,
) -> Composite:
    """Draw once, and give back all of it.

    Args:
        settings, means3D to cov3D_precomp: as for `rasterizer.rasterize`.
        features: of each kind [P, F] or [P, 1, F].
        theta, rho: three numbers each, in view space, both or none; rotations are normalized then.
        absolute: [P, 2] or [P, 3] leaf that only receives the absolute densification statistic.
        normals: [P, 3], in the place of the shortest axes.
        with_normals: also the map of normals, from scales and rotations where no `normals` are given.
        with_sums: also the sums per Gaussian, which cost a second pass.

    Raises:
        ValueError, TypeError: as `rasterize`; one of `theta` and `rho` alone; normals of Gaussians without scales.
    """
    if (theta is None) != (rho is None):
        raise ValueError("A pose has two parts: give both of `theta` and `rho`, or none.")
    seen_from = means3D
    if theta is not None and rho is not None:
        # changes of the camera's pose by nothing, of which there are derivatives
        turn_by, move_by = (part.reshape(3) - part.reshape(3).detach() for part in (theta, rho))
        view = settings.viewmatrix.detach().to(means3D)  # for row vectors: world to view
        # the camera's center moves the other way
        seen_from = means3D + move_by @ view[:3, :3].t()
        means3D, rotations, cov3D_precomp = _moved(view, turn_by, move_by, means3D, rotations, cov3D_precomp)
    if absolute is not None:
        if means2D is None:
            means2D = torch.zeros_like(means3D)
        means2D = torch.cat([means2D[:, :2], absolute[:, :2]], dim=1)
    kinds = [item.reshape(means3D.shape[0], -1) for item in features]
    if with_normals:
        if normals is None:
            normals = _shortest_axes(settings.campos, seen_from, scales, rotations)
        kinds.append(normals)
    widths = [item.shape[1] for item in kinds]
    count = settings.bg.numel()
    if shs is not None and (kinds or theta is not None):
        seen = Gaussians(seen_from, None, opacities, shs, None, scales, rotations, cov3D_precomp)
        shs, colors_precomp = None, colors_of(settings, seen)
    wider = settings
    if kinds and colors_precomp is not None:
        colors_precomp = torch.cat([colors_precomp, *kinds], dim=1)
        wider = settings._replace(bg=torch.cat([settings.bg.reshape(-1), settings.bg.new_zeros(sum(widths))]))
    shapes = (scales, rotations, cov3D_precomp)
    drawn = rasterize(wider, means3D, means2D, opacities, shs, colors_precomp, *shapes)
    sums = None
    if with_sums:
        still = settings._replace(subpixel_offset=None)
        sums = contributions(still, means3D, opacities, *shapes)
    maps = list(torch.split(drawn.color, [count, *widths]))
    normal_map = maps.pop() if with_normals else None
    return Composite(
        maps[0], drawn.radii, drawn.invdepth, drawn.alpha, drawn.depth, tuple(maps[1:]), normal_map, sums
    )


def _shortest_axes(
    campos: Tensor, means3D: Tensor, scales: Optional[Tensor], rotations: Optional[Tensor]
) -> Tensor:
    """[P, 3] the shortest axis of each Gaussian in the world, turned to the camera. The gradient goes to `rotations`.

    Where lengths are equal, z and y must be shorter than both others, as in diff_gauss.
    """
    if scales is None or rotations is None:
        raise ValueError("Normals are those of scales and rotations: give both, or the normals.")
    x, y, z = scales.detach().unbind(1)
    is_z, is_y = (x > z) & (y > z), (x > y) & (z > y)
    r, i, j, k = rotations.unbind(1)
    along_x = torch.stack([1 - 2 * (j * j + k * k), 2 * (i * j + r * k), 2 * (i * k - r * j)], dim=1)
    along_y = torch.stack([2 * (i * j - r * k), 1 - 2 * (i * i + k * k), 2 * (j * k + r * i)], dim=1)
    along_z = torch.stack([2 * (i * k + r * j), 2 * (j * k - r * i), 1 - 2 * (i * i + j * j)], dim=1)
    axes = torch.where(is_z[:, None], along_z, torch.where(is_y[:, None], along_y, along_x))
    seen = means3D.detach() - campos.to(means3D)
    return torch.where((seen * axes.detach()).sum(1, keepdim=True) > 0, -axes, axes)


def _moved(
    view: Tensor,
    theta: Tensor,
    rho: Tensor,
    means3D: Tensor,
    rotations: Optional[Tensor],
    cov3D_precomp: Optional[Tensor],
) -> tuple[Tensor, Optional[Tensor], Optional[Tensor]]:
    """The Gaussians where the camera, had it stayed, would see them as the moved one does."""
    in_view = means3D.detach() @ view[:3, :3] + view[3, :3]
    turned = torch.cross(theta.expand_as(in_view), in_view, dim=1)
    means3D = means3D + (rho + turned) @ view[:3, :3].t()
    axis = theta @ view[:3, :3].t()
    x, y, z = axis.unbind()
    nothing = torch.zeros_like(x)
    if rotations is not None:
        half = 0.5 * torch.stack(
            [
                torch.stack([nothing, -x, -y, -z]),
                torch.stack([x, nothing, -z, y]),
                torch.stack([y, z, nothing, -x]),
                torch.stack([z, -y, x, nothing]),
            ]
        )
        rotations = rotations + rotations.detach() @ half.t()
    if cov3D_precomp is not None:
        cross = torch.stack(
            [
                torch.stack([nothing, -z, y]),
                torch.stack([z, nothing, -x]),
                torch.stack([-y, x, nothing]),
            ]
        )
        full = cov3D_precomp.detach()[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].view(-1, 3, 3)
        change = cross @ full
        change = (change + change.transpose(1, 2)).reshape(-1, 9)[:, [0, 1, 2, 4, 5, 8]]
        cov3D_precomp = cov3D_precomp + change
    return means3D, rotations, cov3D_precomp
