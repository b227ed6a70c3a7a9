"""Float64 references of the kernels, for the probe that runs inside the target environment.

They are written for clarity, directly from the formulas (SSIM: Wang et al. 2004 with the 11-tap window of 3DGS; EWA splatting:
Zwicker et al. 2001 with the constants of 3DGS, Kerbl et al. 2023; the compensations of opacity: Inria 2024 and Mip-Splatting,
Yu et al. 2024; surfels: Huang et al. 2024), and share no code with the kernels. Imports torch only; Python 3.8.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

FAINTEST = 1.0 / 255.0
"""Opacity of a Gaussian at a pixel, below which it is left out."""


def ssim_reference(first: Tensor, second: Tensor) -> Tensor:
    """Return the mean SSIM of two [1, C, H, W] images with data range 1, zero padding, blurred down and across."""
    offsets = torch.arange(11, dtype=first.dtype, device=first.device) - 5
    line = torch.exp(-(offsets**2) / (2 * 1.5**2))
    line = line / line.sum()
    down, across = line.view(1, 1, 11, 1), line.view(1, 1, 1, 11)

    def blur(image: Tensor) -> Tensor:
        planes = image.reshape(-1, 1, *image.shape[2:])
        planes = torch.nn.functional.conv2d(planes, down, padding=(5, 0))
        return torch.nn.functional.conv2d(planes, across, padding=(0, 5)).reshape(image.shape)

    mean1, mean2 = blur(first), blur(second)
    var1, var2 = blur(first * first) - mean1**2, blur(second * second) - mean2**2
    cross = blur(first * second) - mean1 * mean2
    c1, c2 = 0.01**2, 0.03**2
    below = (mean1**2 + mean2**2 + c1) * (var1 + var2 + c2)
    return ((2 * mean1 * mean2 + c1) * (2 * cross + c2) / below).mean()


def knn_reference(points: Tensor, rows: Tensor) -> Tensor:
    """Return the mean squared distance of some points to the three nearest others, by comparing each with all of them."""
    squared = torch.zeros(len(rows), len(points), dtype=points.dtype)
    for axis in range(3):
        squared += (points[rows, axis, None] - points[None, :, axis]) ** 2
    squared[torch.arange(len(rows)), rows] = math.inf
    return torch.topk(squared, 3, largest=False).values.mean(1)


class ReferenceSplats(NamedTuple):
    """Gaussians as the rasterizers take them; the leaves whose gradients are compared."""

    means: Tensor  # [P, 3]
    scales: Tensor  # [P, 3]; discs have two
    rotations: Tensor  # [P, 4] (w, x, y, z), of any length
    opacities: Tensor  # [P, 1]
    shs: Tensor  # [P, 16, 3]

    @property
    def sh_degree(self) -> int:
        """As a trainer's splats have it: of all of them."""
        return 3

    def each(self, change: Callable[[Tensor], Tensor]) -> ReferenceSplats:
        """Return them with a change of each tensor."""
        return ReferenceSplats(*map(change, self))


class Pinhole(NamedTuple):
    """A camera in float64, and what a variant draws differently."""

    size: Tuple[int, int]  # (width, height) in pixels
    focal: Tensor  # [2], in pixels, across and down
    pose: Tensor  # [4, 4], world to camera, which looks along z
    background: Tensor  # [3]
    antialiasing: bool = False  # Inria's compensation of 2024
    kernel_size: Optional[float] = None  # Mip-Splatting's low-pass in pixels^2, with its compensation
    offset: Optional[Tensor] = None  # [H, W, 2], added to the pixel centres

    @property
    def place(self) -> Tensor:
        """Where it stands in the world, [3]."""
        return -self.pose[:3, 3] @ self.pose[:3, :3]

    @property
    def middle(self) -> Tensor:
        """The centre of the image, [2]: pixel centres lie at integers."""
        return (torch.tensor(self.size, dtype=self.pose.dtype) - 1) / 2


def splats_at(
    camera: Pinhole, splats: ReferenceSplats, across: Tensor, down: Tensor
) -> Tuple[Tensor, Tensor]:
    """Return color and inverse depth, [4, S], and the opacity [P, S] of each Gaussian, nearest first, at S pixels, blended
    without tiles.

    The kernels cut every Gaussian at the tiles that they think it reaches; this reference does not, so the scene keeps opacities
    low enough that nothing beyond 3 sigma reaches 1/255.
    """
    (means, turns), dtype, focal = _seen(camera, splats), splats.means.dtype, camera.focal
    depth = means[:, 2:]
    stretched = turns * splats.scales[:, None, :]
    covariance = stretched @ stretched.transpose(1, 2)
    sides = torch.cat(
        [torch.eye(2, dtype=dtype).expand(len(means), 2, 2), -means[:, :2, None] / depth[..., None]], 2
    )
    jacobian = sides * (focal / depth)[..., None]
    sharp = jacobian @ covariance @ jacobian.transpose(1, 2)
    blur = 0.3 if camera.kernel_size is None else camera.kernel_size
    flat = sharp + blur * torch.eye(2, dtype=dtype)
    opacities = splats.opacities[:, 0]
    if camera.antialiasing:
        opacities = opacities * torch.sqrt((torch.det(sharp) / torch.det(flat)).clamp_min(2.5e-5))
    if camera.kernel_size is not None:
        opacities = opacities * torch.sqrt(torch.det(sharp) / (torch.det(flat) + 1e-6) + 1e-6)
    pixels = torch.stack([across, down], 1).to(dtype)
    if camera.offset is not None:
        pixels = pixels + camera.offset[down, across]
    order = torch.argsort(depth[:, 0])
    centres = means[:, :2] / depth * focal + camera.middle
    away = centres[order, None] - pixels  # [P, S, 2]
    power = -0.5 * (away @ torch.linalg.inv(flat)[order] * away).sum(-1)
    opacity = opacities[order, None] * torch.exp(power)
    alpha = torch.where(opacity < FAINTEST, torch.zeros_like(opacity), opacity)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:1]), 1 - alpha]), 0)
    weights = alpha * through[:-1]
    image = _colors(splats, camera.place)[order].t() @ weights + camera.background[:, None] * through[-1]
    return torch.cat([image, (weights / depth[order]).sum(0, keepdim=True)]), opacity


def surfels_at(
    camera: Pinhole, splats: ReferenceSplats, across: Tensor, down: Tensor
) -> Tuple[Tensor, Tensor]:
    """Return color and the seven maps, [10, S], of discs with the first two scales of each Gaussian at S pixels, as 2DGS defines
    them, and the opacity [P, S] of each, nearest first.

    Rays meet the plane of every disc in camera space. Where a pixel lies nearer to the center of the disc's box, in units of
    1 / sqrt(2) pixels, than its ray to the disc's center, in sigmas, that decides, and the place on the disc counts as a constant
    in the depth. No cut at 3 sigma, see :func:`splats_at`. The distortion is that of all pairs of discs.
    """
    (means, turns), dtype, focal = _seen(camera, splats), splats.means.dtype, camera.focal
    sides = (torch.stack([across, down], 1) - camera.middle) / focal
    rays = torch.nn.functional.pad(sides, (0, 1), value=1.0)  # of depth 1
    order = torch.argsort(means[:, 2])
    means, turns, scales = means[order], turns[order], splats.scales[order, None, :2]
    faces_away = (turns[:, :, 2] * means).sum(1, keepdim=True) >= 0
    normals = torch.where(faces_away, -turns[:, :, 2], turns[:, :, 2])
    depth = (normals * means).sum(1, keepdim=True) / (normals @ rays.t())  # [P, S]
    offset = (rays * depth[..., None] - means[:, None]) @ turns[:, :, :2] / scales  # [P, S, 2]
    axes = (turns[:, :, :2] * scales).transpose(1, 2)
    on_plane = (offset.detach() @ axes)[..., 2] + means[:, 2:]
    # the box of the ellipse at 3 sigma, from the homogeneous pixel coordinates of its axes and center
    points = torch.cat([axes, means[:, None]], 1)
    parts = torch.tensor([9.0, 9.0, -1.0], dtype=dtype)[:, None] * points[..., 2:]
    middle = (parts * points[..., :2]).sum(1) / (parts * points[..., 2:]).sum(1)
    low_pass = 2 * (((sides - middle[:, None]) * focal) ** 2).sum(-1)
    squared = (offset**2).sum(-1)
    depth = torch.where(squared <= low_pass, depth, on_plane)
    opacity = splats.opacities[order] * torch.exp(-0.5 * torch.minimum(squared, low_pass))
    alpha = torch.where((opacity < FAINTEST) | (depth < 0.2), torch.zeros_like(opacity), opacity)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:1]), 1 - alpha]), 0)
    weights = alpha * through[:-1]
    image = _colors(splats, camera.place)[order].t() @ weights + camera.background[:, None] * through[-1]
    # the last of those before half of the light is gone
    count = torch.arange(1, len(depth) + 1)[:, None] * ((alpha > 0) & (through[:-1] > 0.5))
    median = torch.cat([torch.zeros_like(depth[:1]), depth]).gather(0, count.amax(0, keepdim=True))
    unit = 100.0 / 99.8 * (1 - 0.2 / depth)
    # of the discs in front: weights, times their depth, times its square
    ones, first, second = [
        torch.cumsum(part, 0) - part for part in (weights, weights * unit, weights * unit**2)
    ]
    distortion = weights * (unit**2 * ones - 2 * unit * first + second)
    sums = [(weights * depth).sum(0, keepdim=True), weights.sum(0, keepdim=True), normals.t() @ weights]
    return torch.cat([image, *sums, median, distortion.sum(0, keepdim=True)]), opacity


def _seen(camera: Pinhole, splats: ReferenceSplats) -> Tuple[Tensor, Tensor]:
    """Return positions [P, 3] and rotation matrices [P, 3, 3] in front of a camera; before its pose, I + 2 w K + 2 K K where K is
    the cross product with (x, y, z)."""
    w, x, y, z = torch.nn.functional.normalize(splats.rotations).unbind(-1)
    zero, turn = torch.zeros_like(w), camera.pose[:3, :3]
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(-1, 3, 3)
    turns = torch.eye(3, dtype=w.dtype) + 2 * w[:, None, None] * cross + 2 * cross @ cross
    return splats.means @ turn.t() + camera.pose[:3, 3], turn @ turns


def _colors(splats: ReferenceSplats, place: Tensor) -> Tensor:
    """Return spherical harmonics up to degree 3 seen from a place, [P, 3]; never below 0 in the scenes that are drawn. Signs and
    order are those of 3DGS, factors the square roots of real harmonics."""
    x, y, z = torch.nn.functional.normalize(splats.means - place).t()[:, :, None]
    pi = math.pi
    first, second, third = math.sqrt(3 / pi) / 2, math.sqrt(15 / pi) / 2, math.sqrt(35 / (2 * pi)) / 4
    middle, outer = math.sqrt(21 / (2 * pi)) / 4, math.sqrt(105 / pi) / 2
    basis = [
        torch.full_like(x, 1 / math.sqrt(4 * pi)),
        -first * y,
        first * z,
        -first * x,
        second * x * y,
        -second * y * z,
        math.sqrt(5 / pi) / 4 * (2 * z * z - x * x - y * y),
        -second * x * z,
        second / 2 * (x * x - y * y),
        -third * y * (3 * x * x - y * y),
        outer * x * y * z,
        -middle * y * (4 * z * z - x * x - y * y),
        math.sqrt(7 / pi) / 4 * z * (2 * z * z - 3 * x * x - 3 * y * y),
        -middle * x * (4 * z * z - x * x - y * y),
        outer / 2 * z * (x * x - y * y),
        -third * x * (x * x - 3 * y * y),
    ]
    return 0.5 + (torch.stack(basis, 1) * splats.shs).sum(1)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return the largest absolute difference over the largest reference magnitude; infinite for non-finite values or another
    shape."""
    actual, expected = actual.detach().double().cpu(), expected.detach().double().cpu()
    if actual.shape != expected.shape or not bool(torch.isfinite(actual).all()):
        return math.inf
    return float((actual - expected).abs().max() / expected.abs().max().clamp_min(1e-12))


def largest_error(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest relative error of the gradients of some leaves; infinite where one is missing that the reference has."""
    worst = 0.0
    for one, exact in zip(actual, expected):
        if exact.grad is not None:
            worst = max(worst, math.inf if one.grad is None else relative_error(one.grad, exact.grad))
    return worst


def measured(
    value: float,
    allowed: float,
    gradient: Optional[float] = None,
    gradient_allowed: Optional[float] = None,
    detail: str = "",
) -> Dict[str, Any]:
    """Return the result of a comparison, which failed where an error is above what is allowed, or where a detail says so."""
    right = value <= allowed and (
        gradient is None or gradient_allowed is None or gradient <= gradient_allowed
    )
    return {
        "outcome": "met" if right and not detail else "failed",
        # JSON has no infinity
        "value_error": value if math.isfinite(value) else None,
        "value_allowed": allowed,
        "gradient_error": gradient if gradient is None or math.isfinite(gradient) else None,
        "gradient_allowed": gradient_allowed,
        "detail": detail,
    }
