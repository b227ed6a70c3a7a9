"""Scenes that the kernels' tests share: a camera, Gaussians, surfels, clouds of points; the same from the same seed."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from splatfix.kernels.rasterizer import GaussianRasterizationSettings

from .rasterizer_reference import rotation_matrix

Inputs = dict[str, Tensor]
"""Arguments of a rasterizer by name, float64, without means2D."""


def rand(*shape: int, seed: int = 0) -> Tensor:
    """Float64, in 0 ... 1."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def look_at(
    width: int, height: int, fov: float = 0.9, distance: float = 4.0, roll: float = 0.3, **options: Any
) -> GaussianRasterizationSettings:
    """A tilted camera `distance` in front of the origin, matrices transposed as the family passes them."""
    tanx = math.tan(fov / 2)
    tany = tanx * height / width
    c, s = math.cos(roll), math.sin(roll)
    rotation = torch.tensor([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    tilt = torch.tensor([[1, 0, 0], [0, 0.96, -0.28], [0, 0.28, 0.96]], dtype=torch.float64)
    w2c = torch.eye(4, dtype=torch.float64)
    w2c[:3, :3] = rotation @ tilt
    w2c[:3, 3] = torch.tensor([0.1, -0.05, distance])
    near, far = 0.01, 100.0
    projection = torch.zeros(4, 4, dtype=torch.float64)
    projection[0, 0], projection[1, 1] = 1 / tanx, 1 / tany
    projection[2, 2], projection[2, 3], projection[3, 2] = far / (far - near), -far * near / (far - near), 1.0
    fields = {"image_height": height, "image_width": width, "tanfovx": tanx, "tanfovy": tany}
    fields |= {"viewmatrix": w2c.T.contiguous(), "projmatrix": (projection @ w2c).T.contiguous()}
    fields |= {"bg": torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)}
    fields |= {"campos": torch.linalg.inv(w2c)[:3, 3], "scale_modifier": 1.0, "sh_degree": 3}
    fields |= {"prefiltered": False, "debug": False}
    return GaussianRasterizationSettings(**fields | options)


def cloud(
    count: int,
    seed: int = 0,
    spread: float = 1.0,
    size: tuple[float, float] = (0.05, 0.4),
    degree: int = 3,
    precomputed: bool = False,
    covariance: bool = False,
) -> Inputs:
    """Random Gaussians about the origin, float64."""
    rand = partial(torch.rand, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    inputs = {"means3D": (rand(count, 3) * 2 - 1) * spread, "opacities": 0.05 + 0.93 * rand(count, 1)}
    scales = size[0] + (size[1] - size[0]) * rand(count, 3) ** 2
    rotations = normalize(rand(count, 4) * 2 - 1)
    if covariance:
        m = torch.stack([rotation_matrix(q) for q in rotations]) * scales[:, None, :]
        sigma = m @ m.transpose(1, 2)
        inputs["cov3D_precomp"] = sigma[:, (0, 0, 0, 1, 1, 2), (0, 1, 2, 1, 2, 2)].contiguous()
    else:
        inputs.update(scales=scales, rotations=rotations)
    if precomputed:
        inputs["colors_precomp"] = rand(count, 3)
    else:
        inputs["shs"] = (rand(count, (degree + 1) ** 2, 3) - 0.5) * 0.8
    return inputs


def discs(count: int, seed: int = 0, **options: Any) -> Inputs:
    """Random surfels: Gaussians without their third axis."""
    inputs = cloud(count, seed, **options)
    return inputs | {"scales": inputs["scales"][:, :2].contiguous()}


def facing(count: int, seed: int, **options: Any) -> Inputs:
    """Large discs, turned towards the camera but for a few degrees: the low-pass decides nowhere."""
    inputs = discs(count, seed, size=(0.5, 0.9), **options)
    towards = quaternion(look_at(8, 8).viewmatrix[:3, :3])
    turn = towards + 0.02 * (inputs["rotations"] - towards)
    return inputs | {"rotations": normalize(turn)}


def edge_on(tilt: float) -> Inputs:
    """Discs whose plane nearly holds the ray to their center: `tilt` radians are left."""
    inputs, settings = discs(12, seed=21, size=(0.2, 0.5)), look_at(40, 30)
    rotations = []
    for i, mean in enumerate(inputs["means3D"]):
        ray, axis = normalize(mean - settings.campos, dim=0), torch.eye(3, dtype=torch.float64)[i % 3]
        side = normalize(torch.linalg.cross(ray, axis), dim=0)
        normal = math.cos(tilt) * side + math.sin(tilt) * ray
        first = normalize(torch.linalg.cross(normal, side + 0.3 * ray), dim=0)
        turn = torch.stack([first, torch.linalg.cross(normal, first), normal], dim=1)
        rotations.append(quaternion(turn))
    return inputs | {"rotations": torch.stack(rotations)}


def quaternion(turn: Tensor) -> Tensor:
    """(w, x, y, z) of a rotation, as the eigenvector that the rotation's 4x4 form has for its largest eigenvalue."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = turn.tolist()
    form = torch.tensor(
        [
            [xx + yy + zz, zy - yz, xz - zx, yx - xy],
            [zy - yz, xx - yy - zz, xy + yx, xz + zx],
            [xz - zx, xy + yx, yy - xx - zz, yz + zy],
            [yx - xy, xz + zx, yz + zy, zz - xx - yy],
        ],
        dtype=torch.float64,
    )
    return torch.linalg.eigh(form)[1][:, -1]


KINDS = ["uniform", "clustered", "duplicated", "one point", "collinear", "planar", "grid", "far", "tiny"]


def points_of(kind: str, count: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A cloud [count, 3] on which nearest neighbours are hard to find."""
    g = torch.Generator().manual_seed(seed)
    uniform = torch.rand(count, 3, generator=g, dtype=torch.float64)
    normal = torch.randn(count, 3, generator=g, dtype=torch.float64)
    if kind == "clustered":  # dense flat clusters of many sizes, and stragglers far away
        centres = torch.randn(12, 3, generator=g, dtype=torch.float64)
        which = torch.randint(0, 12, (count,), generator=g)
        size = 10.0 ** (-3 * torch.rand(12, 1, generator=g, dtype=torch.float64))
        points = centres[which] + normal * size[which] * torch.tensor([1.0, 0.5, 0.02])
        straggler = torch.rand(count, generator=g) < 0.05
        points[straggler] = normal[straggler] * 50
        return points.to(dtype)
    return {
        "uniform": uniform,
        "duplicated": uniform[torch.randint(0, max(1, count // 6), (count,), generator=g)],
        "one point": uniform[:1].expand(count, 3).clone(),
        "collinear": uniform[:, :1] * torch.tensor([1.0, -2.0, 0.5]),
        "planar": uniform * torch.tensor([1.0, 0.0, 1.0]),
        "grid": torch.randint(0, 5, (count, 3), generator=g).double(),  # equal distances everywhere
        "far": uniform + torch.tensor([1e5, -1e5, 1e5]),
        "tiny": uniform * 1e-12,
    }[kind].to(dtype)
