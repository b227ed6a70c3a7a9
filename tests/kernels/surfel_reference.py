"""A naive float64 rasterizer of surfels: every surfel against every pixel, plain autograd, ray by ray from the paper's formulas.

It shares no code with `splatfix.kernels.surfels`: no tiles, no linear form of the intersection, no determinant; the distortion
is summed over all pairs. Only what is not the derivative (the 0.99 cap, the low-pass depth) is spelled out by detached terms.
"""

import math
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .rasterizer_reference import color_of, rotation_matrix, within_tiles


class SurfelReference(NamedTuple):
    color: Tensor
    radii: Tensor
    allmap: Tensor
    planes: Tensor
    """[P, 3, 3], Tu, Tv, Tw in the rows."""
    low_pass: Tensor
    """[P, H, W] bool: drawn, and the low-pass decides."""


class _SurfelStatistic(torch.autograd.Function):
    """The planes as they are; the gradient of Tu.z and Tv.z, times depth and half the image, is that of `means2D`."""

    @staticmethod
    def forward(ctx: Any, planes: Tensor, means2D: Tensor, settings: Any) -> Tensor:
        ctx.scale = planes[:, 2, 2:] * planes.new_tensor([settings.image_width, settings.image_height]) / 2
        ctx.columns = means2D.shape[1]
        return planes.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        screen = gradient.new_zeros(len(gradient), ctx.columns)
        screen[:, :2] = gradient[:, :2, 2] * ctx.scale
        return gradient, screen, None


def _planes(settings: Any, mean: Tensor, scale: Tensor, rotation: Tensor) -> Tensor:
    """Tu, Tv, Tw, by mapping three points of the disc's plane in homogeneous coordinates."""
    turn = rotation_matrix(rotation / rotation.norm())
    width, height = settings.image_width, settings.image_height
    zero, one = mean.new_zeros(1), mean.new_ones(1)
    columns = [torch.cat([turn[:, k] * scale[k] * settings.scale_modifier, zero]) for k in (0, 1)]
    columns.append(torch.cat([mean, one]))
    clip = [column @ settings.projmatrix.double() for column in columns]
    # ((ndc + 1) size - 1) / 2, times w
    across = [((c[0] + c[3]) * width - c[3]) / 2 for c in clip]
    down = [((c[1] + c[3]) * height - c[3]) / 2 for c in clip]
    return torch.stack([torch.stack(across), torch.stack(down), torch.stack([c[3] for c in clip])])


def _box(planes: Tensor) -> Optional[tuple[Tensor, float]]:
    """Center of the 3-sigma box, and the radius; None where it has none."""
    tu, tv, tw = planes
    distance = 9 * tw[0] ** 2 + 9 * tw[1] ** 2 - tw[2] ** 2
    if distance == 0:
        return None
    weights = torch.stack([9 / distance, 9 / distance, -1 / distance])
    center = torch.stack([(weights * tu * tw).sum(), (weights * tv * tw).sum()])
    squares = [center[0] ** 2 - (weights * tu * tu).sum(), center[1] ** 2 - (weights * tv * tv).sum()]
    extent = max(math.sqrt(max(1e-4, float(square.detach()))) for square in squares)
    return center, math.ceil(max(extent, 3 * 0.707106))


def render(
    settings: Any,
    means3D: Tensor,
    opacities: Tensor,
    shs: Optional[Tensor] = None,
    colors_precomp: Optional[Tensor] = None,
    scales: Optional[Tensor] = None,
    rotations: Optional[Tensor] = None,
    transforms: Optional[Tensor] = None,
    means2D: Optional[Tensor] = None,
) -> SurfelReference:
    """float64 inputs only; differentiable in all of them."""
    count, height, width = means3D.shape[0], settings.image_height, settings.image_width
    rows = torch.arange(height, dtype=torch.float64)[:, None].expand(height, width)
    columns = torch.arange(width, dtype=torch.float64).expand(height, width)
    radii, met = torch.zeros(count, dtype=torch.int32), torch.zeros(count, height, width, dtype=torch.bool)
    if transforms is not None:
        planes = transforms.view(-1, 3, 3)
    elif count:
        assert scales is not None and rotations is not None
        each = zip(means3D, scales, rotations, strict=True)
        planes = torch.stack([_planes(settings, *one) for one in each])
    else:
        planes = means3D.new_zeros(0, 3, 3)
    plain = planes
    screen = torch.zeros_like(means3D) if means2D is None else means2D
    planes = _SurfelStatistic.apply(planes, screen, settings)
    if transforms is not None:  # only then the statistic has the low-pass's part
        plain = planes
    view = settings.viewmatrix.double()
    splats = []
    for i in range(count):
        observed = (torch.cat([means3D[i], means3D.new_ones(1)]) @ view)[:3]
        normal = means3D.new_tensor([0.0, 0.0, 1.0])
        if transforms is None:
            assert rotations is not None
            normal = rotation_matrix(rotations[i] / rotations[i].norm())[:, 2] @ view[:3, :3]
        facing = -float((observed * normal).sum().detach())
        box = _box(plain[i])
        if not observed[2] > 0.2 or facing == 0 or box is None:
            continue
        center, radius = box
        within = within_tiles(settings, *center.tolist(), radius)
        if not within.any():
            continue
        radii[i] = radius
        color = color_of(settings, means3D[i], i, shs, colors_precomp)
        normal = normal if facing > 0 else -normal
        splats.append((float(observed[2].detach()), i, center, normal, color, within))
    splats.sort(key=lambda splat: (splat[0], splat[1]))

    nothing = means3D.new_zeros(height, width)
    through, running = nothing + 1, torch.ones(height, width, dtype=torch.bool)
    color, normals = nothing.expand(settings.bg.numel(), -1, -1), nothing.expand(3, -1, -1)
    depth = median = nothing
    weights, places = [], []
    for _, i, center, normal, own, within in splats:
        tu, tv, tw = planes[i]
        k = columns[..., None] * tw - tu
        m = rows[..., None] * tw - tv
        p = torch.linalg.cross(k, m)
        good = within & (p[..., 2] != 0)
        safe = torch.where(good[..., None], p, torch.ones_like(p))
        s = safe[..., :2] / safe[..., 2:]
        near3d, near2d = (s**2).sum(-1), 2 * ((columns - center[0]) ** 2 + (rows - center[1]) ** 2)
        decided = near3d <= near2d
        where = torch.where(decided[..., None], s, s.detach())
        far = where[..., 0] * tw[0] + where[..., 1] * tw[1] + tw[2]
        rho = torch.where(decided, near3d, near2d)
        alpha = opacities.reshape(-1)[i] * torch.exp(-0.5 * rho)
        alpha = alpha - (alpha - 0.99).clamp_min(0).detach()
        drawn = good & (far >= 0.20000000298023224) & (alpha >= 1 / 255)
        after = through * (1 - alpha)
        running = running & ~(drawn & (after < 1e-4))
        drawn = drawn & running
        far = torch.where(drawn, far, torch.ones_like(far))
        weight = torch.where(drawn, alpha * through, nothing)
        met[i] = drawn & ~decided
        color = color + weight * own[:, None, None]
        normals = normals + weight * normal[:, None, None]
        depth = depth + weight * far
        median = torch.where(drawn & (through > 0.5), far, median)
        weights.append(weight)
        places.append(100 / (100 - 0.20000000298023224) * (1 - 0.20000000298023224 / far))
        through = torch.where(drawn, after, through)
    distortion = nothing
    for i in range(len(weights)):
        for j in range(i):
            distortion = distortion + weights[i] * weights[j] * (places[i] - places[j]) ** 2
    color = color + through * settings.bg.double()[:, None, None]
    allmap = torch.cat([depth[None], 1 - through[None], normals, median[None], distortion[None]])
    return SurfelReference(color, radii, allmap, planes, met)


def rasterize(
    settings: Any, means3D: Tensor, means2D: Tensor, *others: Optional[Tensor]
) -> tuple[Tensor, ...]:
    """Colour, radii and maps: called as the kernels are, densification statistic included."""
    return render(settings, means3D, *others, means2D=means2D)[:3]
