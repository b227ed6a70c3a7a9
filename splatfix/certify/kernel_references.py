"""Float64 references of the kernels, for the probe that runs inside the target environment.

They are written for clarity, directly from the formulas (SSIM: Wang et al. 2004 with the 11-tap window of 3DGS; EWA splatting:
Zwicker et al. 2001 with the constants of 3DGS, Kerbl et al. 2023; the compensations of opacity: Inria 2024 and Mip-Splatting,
Yu et al. 2024; surfels: Huang et al. 2024), and share no code with the kernels. Imports torch only; Python 3.8.
"""

from __future__ import annotations

import math
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

BLANK: Dict[str, Any] = {
    "imported": True,
    "value_error": None,
    "value_allowed": 0.0,
    "gradient_error": None,
    "gradient_allowed": None,
    "detail": "",
}
"""The result of a check before anything was measured."""
FAINTEST = 1.0 / 255.0
"""Opacity of a Gaussian at a pixel, below which it is left out."""


def ssim_reference(first: Tensor, second: Tensor) -> Tensor:
    """Mean SSIM of two [1, C, H, W] images with data range 1, zero padding, blurred down and across."""
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
    return (
        (2 * mean1 * mean2 + c1) * (2 * cross + c2) / ((mean1**2 + mean2**2 + c1) * (var1 + var2 + c2))
    ).mean()


def knn_reference(points: Tensor, rows: Tensor) -> Tensor:
    """Mean squared distance of some points to the three nearest others, by comparing each with all of them."""
    squared = torch.zeros(len(rows), len(points), dtype=points.dtype)
    for axis in range(3):
        squared += (points[rows, axis, None] - points[None, :, axis]) ** 2
    squared[torch.arange(len(rows)), rows] = math.inf
    return torch.topk(squared, 3, largest=False).values.mean(1)


class ReferenceSplats(NamedTuple):
    """Gaussians as the rasterizers take them; the leaves whose gradients are compared."""

    means: Tensor  # [P, 3]
    scales: Tensor  # [P, 3]
    rotations: Tensor  # [P, 4] (w, x, y, z), normalized
    opacities: Tensor  # [P, 1]
    shs: Tensor  # [P, 16, 3], of which the camera's degree is used


class Pinhole(NamedTuple):
    """A camera at the origin that looks along z unless it has a pose, and what a variant draws differently."""

    size: Tuple[int, int]  # (width, height) in pixels
    focal: float  # pixels
    background: Tensor  # [3]
    antialiasing: bool = False  # Inria's compensation of 2024
    kernel_size: Optional[float] = None  # Mip-Splatting's low-pass in pixels^2, with its compensation
    offset: Optional[Tensor] = None  # [H, W, 2], added to the pixel centres
    pose: Optional[Tensor] = None  # [4, 4], world to camera; not of surfels
    aspect: float = 1.0  # the focal length down by that across
    degree: int = 1  # of the spherical harmonics

    @property
    def place(self) -> Tensor:
        """Where it stands in the world, [3]."""
        if self.pose is None:
            return torch.zeros_like(self.background)
        return -self.pose[:3, 3] @ self.pose[:3, :3]


def splat_reference(camera: Pinhole, splats: ReferenceSplats) -> Tuple[Tensor, Tensor]:
    """Color [3, H, W] and inverse depth [1, H, W] at every pixel; see :func:`splats_at`."""
    width, height = camera.size
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    image, inverse, _ = splats_at(camera, splats, columns.flatten(), rows.flatten())
    return image.reshape(3, height, width), inverse.reshape(1, height, width)


def splats_at(
    camera: Pinhole, splats: ReferenceSplats, across: Tensor, down: Tensor
) -> Tuple[Tensor, Tensor, Tensor]:
    """Color [3, S], inverse depth [S] and the opacity [P, S] of each Gaussian, nearest first, at S pixels, blended without tiles.

    Pixel centres lie at integers, the image centre at ((W - 1) / 2, (H - 1) / 2). The kernels cut every Gaussian at the tiles
    that they think it reaches; this reference does not, so the scene keeps opacities low enough that nothing beyond
    3 sigma reaches 1/255.
    """
    (width, height), focal, focal_down = camera.size, camera.focal, camera.focal * camera.aspect
    means, turns, dtype = splats.means, _turns(splats), splats.means.dtype
    if camera.pose is not None:
        turn = camera.pose[:3, :3]
        means, turns = means @ turn.t() + camera.pose[:3, 3], turn @ turns
    depth = means[:, 2]
    stretched = turns * splats.scales[:, None, :]
    covariance = stretched @ stretched.transpose(1, 2)
    zero = torch.zeros_like(depth)
    jacobian = torch.stack(
        [
            focal / depth,
            zero,
            -focal * means[:, 0] / depth**2,
            zero,
            focal_down / depth,
            -focal_down * means[:, 1] / depth**2,
        ],
        -1,
    ).reshape(-1, 2, 3)
    sharp = jacobian @ covariance @ jacobian.transpose(1, 2)
    blur = 0.3 if camera.kernel_size is None else camera.kernel_size
    flat = sharp + blur * torch.eye(2, dtype=dtype)
    opacities = splats.opacities[:, 0]
    if camera.antialiasing:
        opacities = opacities * torch.sqrt((torch.det(sharp) / torch.det(flat)).clamp_min(2.5e-5))
    if camera.kernel_size is not None:
        opacities = opacities * torch.sqrt(torch.det(sharp) / (torch.det(flat) + 1e-6) + 1e-6)
    conic = torch.linalg.inv(flat)
    centre_x = focal * means[:, 0] / depth + (width - 1) / 2
    centre_y = focal_down * means[:, 1] / depth + (height - 1) / 2
    columns, rows = across.to(dtype), down.to(dtype)
    if camera.offset is not None:
        columns, rows = columns + camera.offset[down, across, 0], rows + camera.offset[down, across, 1]
    order = torch.argsort(depth)
    dx, dy = (centre_x[:, None] - columns)[order], (centre_y[:, None] - rows)[order]
    conic = conic[order][..., None]
    power = -0.5 * (conic[:, 0, 0] * dx * dx + conic[:, 1, 1] * dy * dy) - conic[:, 0, 1] * dx * dy
    opacity = opacities[order, None] * torch.exp(power)
    alpha = torch.where(opacity < FAINTEST, torch.zeros_like(opacity), opacity)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:1]), 1 - alpha]), 0)
    weights = alpha * through[:-1]
    colors = _colors(splats, camera.place, camera.degree)
    image = colors[order].t() @ weights + camera.background[:, None] * through[-1]
    return image, (weights / depth[order, None]).sum(0), opacity


def surfel_reference(
    camera: Pinhole, splats: ReferenceSplats, pixels: Optional[Tuple[Tensor, Tensor]] = None
) -> Tuple[Tensor, Tensor]:
    """Color [3, H, W] and allmap [7, H, W] of discs with the first two scales of each Gaussian, as 2DGS defines them; of S
    ``pixels``, columns and rows, [3, 1, S] and [7, 1, S].

    Rays meet the plane of every disc in camera space. Where a pixel lies nearer to the center of the disc's box, in units of
    1 / sqrt(2) pixels, than its ray to the disc's center, in sigmas, that decides, and the place on the disc counts as a constant
    in the depth. No cut at 3 sigma, see :func:`splat_reference`. The distortion is that of all pairs of discs.
    """
    (width, height), focal = camera.size, camera.focal
    dtype = splats.means.dtype
    rows, columns = torch.meshgrid(
        torch.arange(height, dtype=dtype), torch.arange(width, dtype=dtype), indexing="ij"
    )
    if pixels is not None:
        columns, rows = (side.to(dtype)[None] for side in pixels)
    shape = columns.shape
    across, down = (columns - (width - 1) / 2) / focal, (rows - (height - 1) / 2) / focal
    rays = torch.stack([across, down, torch.ones_like(across)], -1)  # of depth 1
    turns, colors = _turns(splats), _colors(splats, camera.place, camera.degree)
    image = torch.zeros(3, *shape, dtype=dtype)
    maps = torch.zeros(6, *shape, dtype=dtype)
    through = torch.ones(shape, dtype=dtype)
    distortion = torch.zeros(shape, dtype=dtype)
    # of the discs in front: weights, times their depth, times its square
    sums = torch.zeros(3, *shape, dtype=dtype)
    for i in torch.argsort(splats.means[:, 2]).tolist():
        normal = turns[i, :, 2]
        normal = normal if float((normal * splats.means[i]).sum().detach()) < 0 else -normal
        depth = (normal * splats.means[i]).sum() / (rays @ normal)
        offset = (rays * depth[..., None] - splats.means[i]) @ turns[i, :, :2] / splats.scales[i, :2]
        axes = (turns[i, :, :2] * splats.scales[i, :2]).t()
        on_plane = (offset.detach() @ axes + splats.means[i])[..., 2]
        # the box of the ellipse at 3 sigma, from the homogeneous pixel coordinates of its axes and center
        points = torch.cat([axes, splats.means[i][None]])
        weights = torch.tensor([9.0, 9.0, -1.0], dtype=dtype)
        scale = (weights * points[:, 2] ** 2).sum()
        middle_x = focal * (weights * points[:, 0] * points[:, 2]).sum() / scale + (width - 1) / 2
        middle_y = focal * (weights * points[:, 1] * points[:, 2]).sum() / scale + (height - 1) / 2
        low_pass = 2 * ((columns - middle_x) ** 2 + (rows - middle_y) ** 2)
        squared = (offset**2).sum(-1)
        depth = torch.where(squared <= low_pass, depth, on_plane)
        alpha = splats.opacities[i, 0] * torch.exp(-0.5 * torch.minimum(squared, low_pass))
        alpha = torch.where((alpha < 1.0 / 255.0) | (depth < 0.2), torch.zeros_like(alpha), alpha)
        weight = alpha * through
        image = image + colors[i][:, None, None] * weight
        parts = [depth[None], torch.ones_like(depth)[None], normal[:, None, None].expand(3, *shape)]
        middle = torch.where((alpha > 0) & (through > 0.5), depth, maps[5])
        maps = torch.cat([maps[:5] + torch.cat(parts) * weight, middle[None]])
        unit = 100.0 / 99.8 * (1 - 0.2 / depth)
        distortion = distortion + weight * (unit**2 * sums[0] - 2 * unit * sums[1] + sums[2])
        sums = sums + weight * torch.stack([torch.ones_like(unit), unit, unit**2])
        through = through * (1 - alpha)
    return image + camera.background[:, None, None] * through, torch.cat([maps, distortion[None]])


def _turns(splats: ReferenceSplats) -> Tensor:
    """Rotation matrices [P, 3, 3]."""
    w, x, y, z = splats.rotations.unbind(-1)
    return torch.stack(
        [
            1 - 2 * (y * y + z * z),
            2 * (x * y - w * z),
            2 * (x * z + w * y),
            2 * (x * y + w * z),
            1 - 2 * (x * x + z * z),
            2 * (y * z - w * x),
            2 * (x * z - w * y),
            2 * (y * z + w * x),
            1 - 2 * (x * x + y * y),
        ],
        -1,
    ).reshape(-1, 3, 3)


def _colors(splats: ReferenceSplats, place: Tensor, degree: int) -> Tensor:
    """Spherical harmonics of degree 1 or 3 seen from a place, [P, 3]; never below 0 in the scenes that are drawn. Signs and order
    are those of 3DGS, factors the square roots of real harmonics."""
    x, y, z = torch.nn.functional.normalize(splats.means - place).t()[:, :, None]
    pi = math.pi
    first, second, third = math.sqrt(3 / pi) / 2, math.sqrt(15 / pi) / 2, math.sqrt(35 / (2 * pi)) / 4
    basis = [
        torch.full_like(x, 1 / math.sqrt(4 * pi)),
        -first * y,
        first * z,
        -first * x,
    ]
    if degree == 3:
        middle, outer = math.sqrt(21 / (2 * pi)) / 4, math.sqrt(105 / pi) / 2
        basis += [
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
    actual: Tensor = 0.5 + sum(one * splats.shs[:, number] for number, one in enumerate(basis))
    return actual


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Largest absolute difference over the largest reference magnitude; infinite for non-finite values or another shape."""
    actual, expected = actual.detach().double().cpu(), expected.detach().double().cpu()
    if actual.shape != expected.shape or not bool(torch.isfinite(actual).all()):
        return math.inf
    return float((actual - expected).abs().max() / expected.abs().max().clamp_min(1e-12))


def largest_error(actual: Sequence[Optional[Tensor]], expected: Sequence[Optional[Tensor]]) -> float:
    """The largest relative error of gradients; infinite where one is missing that the reference has."""
    worst = 0.0
    for one, other in zip(actual, expected):
        if other is not None:
            worst = max(worst, math.inf if one is None else relative_error(one, other))
    return worst


def finite(number: Optional[float]) -> Optional[float]:
    """For JSON, which has no infinity: None."""
    return number if number is None or math.isfinite(number) else None
