"""Cameras, clouds and the comparison that the rasterizer's tests share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Optional

import pytest
import torch
from torch import Tensor

from splatfix.kernels.rasterizer import GaussianRasterizationSettings, rasterize

from . import rasterizer_reference as reference


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from a second thread, and lose much where other processes keep the cores busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


ARGUMENTS = (
    "means3D",
    "means2D",
    "opacities",
    "shs",
    "colors_precomp",
    "scales",
    "rotations",
    "cov3D_precomp",
)
"""Of the autograd nodes, in order."""
VALUE = 1e-5
GRADIENT = 1e-4


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
    fields = {
        "image_height": height,
        "image_width": width,
        "tanfovx": tanx,
        "tanfovy": tany,
        "bg": torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64),
        "scale_modifier": 1.0,
        "viewmatrix": w2c.T.contiguous(),
        "projmatrix": (projection @ w2c).T.contiguous(),
        "sh_degree": 3,
        "campos": torch.linalg.inv(w2c)[:3, 3],
        "prefiltered": False,
        "debug": False,
    }
    fields.update(options)
    return GaussianRasterizationSettings(**fields)


def cloud(
    count: int,
    seed: int = 0,
    spread: float = 1.0,
    size: tuple[float, float] = (0.05, 0.4),
    degree: int = 3,
    precomputed: bool = False,
    covariance: bool = False,
) -> dict[str, Tensor]:
    """Random Gaussians about the origin, float64: keyword arguments of `rasterize` without means2D."""
    gen = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=gen, dtype=torch.float64)

    inputs = {
        "means3D": (rand(count, 3) * 2 - 1) * spread,
        "opacities": 0.05 + 0.93 * rand(count, 1),
    }
    scales = size[0] + (size[1] - size[0]) * rand(count, 3) ** 2
    rotations = torch.nn.functional.normalize(rand(count, 4) * 2 - 1)
    if covariance:
        m = torch.stack([reference.rotation_matrix(q) for q in rotations]) * scales[:, None, :]
        sigma = m @ m.transpose(1, 2)
        inputs["cov3D_precomp"] = sigma[:, (0, 0, 0, 1, 1, 2), (0, 1, 2, 1, 2, 2)].contiguous()
    else:
        inputs.update(scales=scales, rotations=rotations)
    if precomputed:
        inputs["colors_precomp"] = rand(count, 3)
    else:
        inputs["shs"] = (rand(count, (degree + 1) ** 2, 3) - 0.5) * 0.8
    return inputs


def weights_for(settings: GaussianRasterizationSettings, seed: int = 1) -> list[Tensor]:
    """Random upstream gradients of colour, inverse depth, alpha and depth."""
    gen = torch.Generator().manual_seed(seed)
    size = (settings.image_height, settings.image_width)
    channels = settings.bg.numel()
    return [torch.randn(c, *size, generator=gen, dtype=torch.float64) for c in (channels, 1, 1, 1)]


IMAGES = ("color", "invdepth", "alpha", "depth")


def run(
    render: Callable[..., Any],
    settings: GaussianRasterizationSettings,
    inputs: dict[str, Tensor],
    upstream: list[Tensor],
    dtype: torch.dtype = torch.float64,
    outputs: tuple[str, ...] = IMAGES,
    **extra: Any,
) -> tuple[Any, dict[str, Optional[Tensor]]]:
    """Render, pull the gradient back: (result, {input: gradient})."""
    leaves = {k: v.detach().to(dtype).requires_grad_() for k, v in inputs.items()}
    result = render(settings, **leaves, **extra)
    loss = sum(
        (getattr(result, name).double() * u).sum()
        for name, u in zip(IMAGES, upstream, strict=True)
        if name in outputs
    )
    targets = list(leaves.values())
    if "means2D" in extra:
        targets.append(extra["means2D"])
    else:
        targets.append(result.pixel_positions)
    gradients = torch.autograd.grad(loss, targets, allow_unused=True)
    return result, dict(zip([*leaves, "means2D"], gradients, strict=True))


def assert_close(name: str, got: Optional[Tensor], expected: Optional[Tensor], tolerance: float) -> None:
    """Largest difference relative to the largest expected magnitude."""
    expected = torch.zeros(1) if expected is None else expected
    got = torch.zeros_like(expected) if got is None else got
    assert torch.isfinite(got).all(), f"{name} is not finite"
    scale = float(expected.abs().max())
    error = float((got.double() - expected.double()).abs().max())
    # a gradient that vanishes by symmetry (rotation of a ball) is left with the rounding of its terms
    assert error <= tolerance * scale + 1e-12, f"{name}: error {error:.2e} of {scale:.2e}"


def compare(
    settings: GaussianRasterizationSettings,
    inputs: dict[str, Tensor],
    dtype: torch.dtype = torch.float64,
    outputs: tuple[str, ...] = IMAGES,
    **options: Any,
) -> Any:
    """Hold the rasterizer against the reference, images and every gradient; 1e-5 and 1e-4 in float32."""
    value, gradient = (1e-9, 1e-7) if dtype == torch.float64 else (VALUE, GRADIENT)
    inputs = {name: tensor.to(dtype).double() for name, tensor in inputs.items()}
    upstream = [u.to(dtype).double() for u in weights_for(settings)]
    expected, wanted = run(reference.render, settings, inputs, upstream, outputs=outputs)
    means2D = torch.zeros_like(inputs["means3D"], dtype=dtype).requires_grad_()
    got, gradients = run(rasterize, settings, inputs, upstream, dtype, outputs, means2D=means2D, **options)
    for name in IMAGES:
        image, target = getattr(got, name), getattr(expected, name)
        assert image.dtype == dtype
        error = float((image.double() - target).detach().abs().max()) / max(
            1.0, float(target.detach().abs().max())
        )
        assert error <= value, f"{name}: error {error:.2e}"
    assert torch.equal(got.radii, expected.radii)
    per_pixel = wanted.pop("means2D")
    half = torch.tensor([0.5 * settings.image_width, 0.5 * settings.image_height], dtype=torch.float64)
    statistic = gradients.pop("means2D")
    if per_pixel is not None:
        assert_close("means2D", statistic[:, :2], per_pixel.sum((1, 2)) * half, gradient)
        third = (per_pixel.abs().sum((1, 2)) * half).sum(1) if settings.kernel_size is not None else None
        assert_close("means2D[:, 2]", statistic[:, 2], third, gradient)
    for name, target in wanted.items():
        assert_close(name, gradients[name], target, gradient)
    return got, gradients
