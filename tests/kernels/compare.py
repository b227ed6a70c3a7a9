"""Holds one rasterizer against another: images, radii, the gradient of every input, and the densification statistic.

Each takes the arguments of its autograd node, in its order: the naive references of this folder in float64, the kernels in
PyTorch, and the CUDA kernels, emulated or on a GPU.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.kernels.projection import Gaussians

from .scenes import Inputs, look_at, rand

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
_BOTH_HAVE = ("means3D", "means2D", "opacities", "shs", "colors_precomp", "scales", "rotations")
ARGUMENTS = (*_BOTH_HAVE, "cov3D_precomp")
"""Behind the settings, in order."""
SURFELS = (*_BOTH_HAVE, "transforms")
IMAGES = ("color", "radii", "invdepth", "alpha", "depth")
"""What a rasterizer of Gaussians gives, in order."""
Drawn = tuple[Tensor, ...]
Render = Callable[..., Drawn]


class OnGpu(Tensor):
    """One on the CPU that says otherwise."""

    is_cuda = True  # type: ignore[assignment]


def gaussians_of(
    inputs: Inputs, dtype: torch.dtype = torch.float64, device: str = "cpu", colors: int = 0
) -> Gaussians:
    """As the kernels hand them on; with black `colors` of so many channels where they are to be none of the inputs'."""
    given = Gaussians(*(inputs[name].to(device, dtype) if name in inputs else None for name in ARGUMENTS))
    if colors:
        given = given._replace(shs=None, colors=given.means3D.new_zeros(len(given.means3D), colors))
    return given


def in_precision(settings: Any, dtype: torch.dtype, device: str = "cpu") -> Any:
    """The camera, every tensor of it in that precision and there."""
    tensors = {name: value for name, value in settings._asdict().items() if isinstance(value, Tensor)}
    return settings._replace(**{name: value.to(device, dtype) for name, value in tensors.items()})


def leaves_of(inputs: Inputs, dtype: torch.dtype | None = None, device: str = "cpu") -> Inputs:
    """The same in that precision, their own without one, and there, which ask for gradients; a view stays a view."""
    return {name: value.detach().to(device, dtype).requires_grad_() for name, value in inputs.items()}


def refused(row: Any, size: tuple[int, int], inputs: Inputs) -> tuple[Any, dict[str, Any]]:
    """Camera and inputs as a row of refused ones has them: lists are shapes of random numbers."""
    view = {
        name: rand(*item) if isinstance(item, tuple) else item for name, item in row.get("view", {}).items()
    }
    dtype, given = getattr(torch, row.get("dtype", "float64")), dict[str, Any](inputs, means2D=None)
    for name, shape in row.get("given", {}).items():
        given[name] = shape and rand(*shape).to(dtype)
    return look_at(*size, **view), given


def map_by_map(render: Render, without_median: bool = False) -> Render:
    """A rasterizer of surfels that gives its seven maps one by one; that of the median depth jumps from surfel to surfel."""

    def drawn(*arguments: Any) -> Drawn:
        color, radii, maps = render(*arguments)
        if without_median:
            return (color, radii, *maps[:5], maps[6])
        return (color, radii, *maps)

    return drawn


def pulled(
    render: Render,
    settings: Any,
    inputs: Inputs,
    dtype: torch.dtype,
    outputs: Sequence[int] | None = None,
    columns: int = 3,
    names: Sequence[str] = ARGUMENTS,
    device: str = "cpu",
) -> tuple[Drawn, Inputs]:
    """What is drawn, and the gradients of a random weighting of it.

    Args:
        outputs: which of the results are weighted; None for all but the radii, which come second.
        columns: of `means2D`, which takes the densification statistic.
        names: of the arguments of `render` behind the settings.
    """
    leaves = leaves_of(inputs, dtype, device)
    screen = torch.zeros(len(leaves["means3D"]), columns, dtype=dtype, device=device, requires_grad=True)
    leaves["means2D"] = screen
    drawn = tuple(render(in_precision(settings, dtype, device), *(leaves.get(name) for name in names)))
    generator = torch.Generator().manual_seed(5)
    loss = sum(leaf.sum() for leaf in leaves.values()) * 0
    for k, image in enumerate(drawn):
        weight = torch.randn(image.shape, generator=generator, dtype=torch.float64)
        if k != 1 and (outputs is None or k in outputs):
            loss = loss + (image * weight.to(device, dtype)).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return drawn, dict(zip(leaves, gradients, strict=True))


def assert_agree(
    reference: Render,
    kernels: Render,
    settings: Any,
    inputs: Inputs,
    dtype: torch.dtype,
    value: float,
    gradient: float,
    device: str = "cpu",
    **options: Any,
) -> tuple[Drawn, Inputs]:
    """What the kernels draw and its gradients, once they equal the reference's to within these tolerances."""
    expected = expected_of(reference, settings, inputs, dtype, **options)
    return assert_as_expected(expected, kernels, dtype, value, gradient, device=device, **options)


Expected = tuple[Any, Inputs, Drawn, Inputs]


def expected_of(
    reference: Render, settings: Any, inputs: Inputs, dtype: torch.dtype, **options: Any
) -> Expected:
    """Camera and inputs in that precision, and what the reference, on the CPU, makes of them in float64."""
    inputs = {name: item.to(dtype).double() for name, item in inputs.items()}
    if dtype == torch.float32:
        settings = in_precision(settings, dtype)
    exact = in_precision(settings, torch.float64)
    return settings, inputs, *pulled(reference, exact, inputs, torch.float64, **options)


def assert_as_expected(
    given: Expected, kernels: Render, dtype: torch.dtype, value: float, gradient: float, **options: Any
) -> tuple[Drawn, Inputs]:
    settings, inputs, expected, expected_gradients = given
    drawn, gradients = pulled(kernels, settings, inputs, dtype, **options)
    assert torch.equal(drawn[1].cpu(), expected[1])
    for k, image in enumerate(expected):
        if k != 1:
            assert drawn[k].dtype == dtype
            assert_close(f"image {k}", drawn[k], image, value, least=1.0)
    for name, target in expected_gradients.items():
        assert_close(name, gradients[name], target, gradient)
    return drawn, gradients


def assert_close(name: str, result: Tensor, expected: Tensor, tolerance: float, least: float = 0.0) -> None:
    """By the largest difference, relative to the largest expected magnitude, or to `least` where that is more."""
    if not expected.numel():
        return
    scale = max(least, float(expected.detach().abs().max()))
    error = float((result.detach().cpu().double() - expected.detach().double()).abs().max())
    # a gradient that vanishes by symmetry (rotation of a ball) is left with the rounding of its terms
    assert error <= tolerance * scale + 1e-12, f"{name}: error {error:.2e} of {scale:.2e}"


def assert_all_close(
    names: Iterable[str], results: Any, expected: Any, tolerance: float, least: float = 0.0
) -> None:
    """Each result by its name; a text is the name of all."""
    names = repeat(names, len(expected)) if isinstance(names, str) else names
    for name, result, target in zip(names, results, expected, strict=True):
        assert_close(name, result, target, tolerance, least)
