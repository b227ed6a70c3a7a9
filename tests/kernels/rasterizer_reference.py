"""A deliberately naive float64 rasterizer: every Gaussian against every pixel, plain autograd, from the contract alone.

It shares no code and no idea of speed with `splatfix.kernels.rasterizer`: no tiles of its own, no expansion of the
power, no analytic gradient. Only the conventions that differ from true autograd (the 0.99 cap, the frustum clamp, the
damped conic) are spelled out with detached terms, because the contract is v1's gradient.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor


class Reference(NamedTuple):
    color: Tensor
    radii: Tensor
    invdepth: Tensor
    alpha: Tensor
    depth: Tensor
    pixel_positions: Tensor
    """[P, H, W, 2], one copy of each centre per pixel."""
    weights: Tensor
    """[P, H, W], alpha T; 0 where a Gaussian is not blended."""


class _Statistic(torch.autograd.Function):
    """One copy of each centre for every pixel; what the copies' gradients add up to, in NDC, is that of `means2D`."""

    @staticmethod
    def forward(ctx: Any, centres: Tensor, means2D: Tensor, settings: Any) -> Tensor:
        height, width = settings.image_height, settings.image_width
        ctx.half = centres.new_tensor([0.5 * width, 0.5 * height])
        ctx.columns, ctx.is_mip = means2D.shape[1], settings.kernel_size is not None
        return centres[:, None, None, :].repeat(1, height, width, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        total, absolute = gradient.sum((1, 2)), gradient.abs().sum((1, 2)) * ctx.half
        screen = gradient.new_zeros(len(gradient), ctx.columns)
        screen[:, :2] = total * ctx.half
        if ctx.columns == 4:  # FastGS
            screen[:, 2:] = absolute
        elif ctx.columns == 3 and ctx.is_mip:
            screen[:, 2] = absolute.sum(1)
        return total, screen, None


class _Damp(torch.autograd.Function):
    """Identity whose gradient is multiplied by a fixed factor."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, factor: Tensor) -> Tensor:
        ctx.factor = factor
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


def rotation_matrix(q: Tensor) -> Tensor:
    r, x, y, z = q
    return torch.stack(
        [
            torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - r * z), 2 * (x * z + r * y)]),
            torch.stack([2 * (x * y + r * z), 1 - 2 * (x * x + z * z), 2 * (y * z - r * x)]),
            torch.stack([2 * (x * z - r * y), 2 * (y * z + r * x), 1 - 2 * (x * x + y * y)]),
        ]
    )


def sh_color(degree: int, sh: Tensor, direction: Tensor) -> Tensor:
    """Real SH written with their closed-form constants, not with a table."""
    x, y, z = direction
    pi = math.pi
    terms = [torch.ones_like(x) * math.sqrt(1 / (4 * pi))]
    if degree >= 1:
        k = math.sqrt(3 / (4 * pi))
        terms += [-k * y, k * z, -k * x]
    if degree >= 2:
        k = math.sqrt(15 / (4 * pi))
        terms += [k * x * y, -k * y * z, math.sqrt(5 / (16 * pi)) * (2 * z * z - x * x - y * y), -k * x * z]
        terms += [math.sqrt(15 / (16 * pi)) * (x * x - y * y)]
    if degree >= 3:
        k3, k2, k1, k0 = (
            math.sqrt(n / d) for n, d in ((35, 32 * pi), (105, 4 * pi), (21, 32 * pi), (7, 16 * pi))
        )
        terms += [-k3 * y * (3 * x * x - y * y), k2 * x * y * z, -k1 * y * (4 * z * z - x * x - y * y)]
        terms += [k0 * z * (2 * z * z - 3 * x * x - 3 * y * y), -k1 * x * (4 * z * z - x * x - y * y)]
        terms += [math.sqrt(105 / (16 * pi)) * z * (x * x - y * y), -k3 * x * (x * x - 3 * y * y)]
    value = sum(term * sh[i] for i, term in enumerate(terms)) + 0.5
    return torch.where(value < 0, torch.zeros_like(value), value)


def color_of(settings: Any, mean: Tensor, i: int, shs: Optional[Tensor], colors: Optional[Tensor]) -> Tensor:
    """As it is given, else by harmonics of the direction from the camera."""
    if colors is not None:
        return colors[i]
    assert shs is not None
    offset = mean - settings.campos.double()
    return sh_color(min(settings.sh_degree, 3), shs[i], offset / offset.norm())


def _one_splat(
    settings: Any,
    mean: Tensor,
    opacity: Tensor,
    scale: Optional[Tensor],
    rotation: Optional[Tensor],
    cov3d: Optional[Tensor],
) -> Optional[tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor, Tensor], Tensor, int]]:
    """(x, y, z, conic, opacity, radius) of one Gaussian, or None where v1 culls it."""
    view, proj = settings.viewmatrix.double(), settings.projmatrix.double()
    point = torch.cat([mean, torch.ones(1, dtype=mean.dtype)])
    tx, ty, tz = (point @ view)[:3]
    if not tz > 0.2:
        return None
    clip = point @ proj
    w = 1 / (clip[3] + 1e-7)
    width, height = settings.image_width, settings.image_height
    x = ((clip[0] * w + 1) * width - 1) * 0.5
    y = ((clip[1] * w + 1) * height - 1) * 0.5

    limx, limy = 1.3 * settings.tanfovx, 1.3 * settings.tanfovy
    if abs(tx / tz) > limx:
        tx = torch.sign(tx).detach() * limx * tz.detach()
    if abs(ty / tz) > limy:
        ty = torch.sign(ty).detach() * limy * tz.detach()
    fx, fy = width / (2 * settings.tanfovx), height / (2 * settings.tanfovy)
    zero = torch.zeros_like(tz)
    jacobian = torch.stack(
        [torch.stack([fx / tz, zero, -fx * tx / tz**2]), torch.stack([zero, fy / tz, -fy * ty / tz**2])]
    )
    if cov3d is None:
        m = rotation_matrix(rotation) @ torch.diag(settings.scale_modifier * scale)
        sigma = m @ m.T
    else:
        a, b, c, d, e, f = cov3d
        sigma = torch.stack([torch.stack([a, b, c]), torch.stack([b, d, e]), torch.stack([c, e, f])])
    w2c = view[:3, :3].T
    sharp = jacobian @ w2c @ sigma @ w2c.T @ jacobian.T
    blur = 0.3 if settings.kernel_size is None else settings.kernel_size
    cov = sharp + blur * torch.eye(2, dtype=sharp.dtype)
    det = cov[0, 0] * cov[1, 1] - cov[0, 1] ** 2
    sharp_det = sharp[0, 0] * sharp[1, 1] - sharp[0, 1] ** 2
    if det == 0:
        return None
    if settings.kernel_size is not None:
        if sharp_det <= 1e-6 or det <= 1e-6:
            opacity = opacity * 0
        else:
            opacity = opacity * torch.sqrt(sharp_det / (det + 1e-6) + 1e-6)
    elif settings.antialiasing:
        opacity = opacity * torch.sqrt(torch.clamp(sharp_det / det, min=2.5e-5))

    square = float(det.detach()) ** 2
    a, b, c = _Damp.apply(torch.stack([cov[0, 0], cov[0, 1], cov[1, 1]]), square / (square + 1e-7))
    inner = a * c - b * b
    conic = (c / inner, -b / inner, a / inner)
    mid, area = 0.5 * float(cov.detach().trace()), float(det.detach())
    radius = math.ceil(3 * math.sqrt(mid + math.sqrt(max(0.1, mid * mid - area))))
    return x, y, tz, conic, opacity, radius


def within_tiles(settings: Any, x: float, y: float, radius: int) -> Tensor:
    """[H, W] bool: the pixels of the 16x16 tiles that the square of the radius touches."""
    sides = []
    for middle, size in ((x, settings.image_width), (y, settings.image_height)):
        tiles, pixels = (size + 15) // 16, torch.arange(size)
        first, last = (min(tiles, max(0, int(edge / 16))) for edge in (middle - radius, middle + radius + 15))
        sides.append((pixels >= first * 16) & (pixels < last * 16))
    return sides[1][:, None] & sides[0]


def least(conic: Sequence[float], x: tuple[float, float], y: tuple[float, float]) -> float:
    """The least a dx^2 + 2 b dx dy + c dy^2 over a rectangle given relative to the centre: inside it, or on one of its sides."""
    if x[0] <= 0 <= x[1] and y[0] <= 0 <= y[1]:
        return 0.0
    a, b, c = conic
    best = math.inf
    for dx in x:
        dy = min(max(-b * dx / c, y[0]), y[1])
        best = min(best, a * dx * dx + 2 * b * dx * dy + c * dy * dy)
    for dy in y:
        dx = min(max(-b * dy / a, x[0]), x[1])
        best = min(best, a * dx * dx + 2 * b * dx * dy + c * dy * dy)
    return best


def _compact_box(settings: Any, x: float, y: float, conic: Sequence[Tensor], opacity: float) -> Tensor:
    """[H, W] bool: the pixels of the 16x16 tiles that FastGS draws a Gaussian in."""
    a, b, c = (float(item.detach()) for item in conic)
    where = torch.zeros(settings.image_height, settings.image_width, dtype=torch.bool)
    level = settings.compact_box * 2 * math.log(255 * opacity) if opacity > 0 else -1.0
    if a <= 0 or c <= 0 or a * c - b * b <= 0 or level < 0:
        return where
    for top in range(0, settings.image_height, 16):
        for left in range(0, settings.image_width, 16):
            if least((a, b, c), (left - x, left + 16 - x), (top - y, top + 16 - y)) <= level:
                where[top : top + 16, left : left + 16] = True
    return where


def render(
    settings: Any,
    means3D: Tensor,
    opacities: Tensor,
    shs: Optional[Tensor] = None,
    colors_precomp: Optional[Tensor] = None,
    scales: Optional[Tensor] = None,
    rotations: Optional[Tensor] = None,
    cov3D_precomp: Optional[Tensor] = None,
    means2D: Optional[Tensor] = None,
) -> Reference:
    """float64 inputs only; differentiable in all of them."""
    count, height, width = means3D.shape[0], settings.image_height, settings.image_width
    background = settings.bg.double()
    radii = torch.zeros(count, dtype=torch.int32)
    rows = torch.arange(height, dtype=torch.float64)[:, None].expand(height, width)
    columns = torch.arange(width, dtype=torch.float64)[None, :].expand(height, width)
    positions: list[Tensor] = []
    weights = torch.zeros(count, height, width, dtype=torch.float64)
    splats = []
    for i in range(count):
        shape = (None if item is None else item[i] for item in (scales, rotations, cov3D_precomp))
        one = _one_splat(settings, means3D[i], opacities.reshape(-1)[i], *shape)
        if one is None:
            positions.append(means3D[i, :2] * 0)
            continue
        x, y, z, conic, opacity, radius = one
        position = torch.stack([x, y])
        positions.append(position)
        center = (float(x.detach()), float(y.detach()))
        if settings.compact_box is None:
            within = within_tiles(settings, *center, radius)
        else:
            within = _compact_box(settings, *center, conic, float(opacity.detach()))
        if not within.any():
            continue
        radii[i] = radius
        color = color_of(settings, means3D[i], i, shs, colors_precomp)
        splats.append((float(z.detach()), i, z, conic, opacity, color, within))
    stacked = torch.stack(positions) if positions else means3D[:, :2] * 0
    stacked = _Statistic.apply(stacked, torch.zeros_like(means3D) if means2D is None else means2D, settings)
    splats.sort(key=lambda s: (s[0], s[1]))

    pixel_x, pixel_y = columns, rows
    if settings.subpixel_offset is not None:
        pixel_x = columns + settings.subpixel_offset[..., 0].double()
        pixel_y = rows + settings.subpixel_offset[..., 1].double()
    nothing = means3D.new_zeros(height, width)
    transmittance, running = nothing + 1, torch.ones(height, width, dtype=torch.bool)
    color, depth, inv = nothing.expand(background.numel(), -1, -1), nothing, nothing
    for _, i, z, conic, opacity, own, within in splats:
        dx, dy = stacked[i, ..., 0] - pixel_x, stacked[i, ..., 1] - pixel_y
        power = -0.5 * (conic[0] * dx * dx + conic[2] * dy * dy) - conic[1] * dx * dy
        reached = within & (power <= 0)
        alpha = opacity * torch.exp(torch.where(reached, power, nothing))
        alpha = alpha - (alpha - 0.99).clamp_min(0).detach()  # the cap is straight-through
        reached = reached & (alpha >= 1 / 255)
        after = transmittance * (1 - alpha)
        running = running & ~(reached & (after < 1e-4))  # stops before this one, for good
        reached = reached & running
        weight = torch.where(reached, alpha * transmittance, nothing)
        weights[i] = weight.detach()
        color = color + weight * own[:, None, None]
        depth = depth + weight * z
        inv = inv + weight / z
        transmittance = torch.where(reached, after, transmittance)
    color = color + transmittance * background[:, None, None]
    return Reference(color, radii, inv[None], 1 - transmittance[None], depth[None], stacked, weights)


def rasterize(
    settings: Any, means3D: Tensor, means2D: Tensor, *others: Optional[Tensor]
) -> tuple[Tensor, ...]:
    """Colour, radii, inverse depth, alpha and depth: called as the kernels are, densification statistic included."""
    return render(settings, means3D, *others, means2D=means2D)[:5]
