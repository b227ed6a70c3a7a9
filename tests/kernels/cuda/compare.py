"""Holds emulated CUDA kernels against the pure-PyTorch ones: images, radii and every gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kernels.rasterizer_compare import ARGUMENTS

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
SURFELS = (*ARGUMENTS[:-1], "transforms")
"""The arguments of the surfels' autograd node, in order."""


def in_precision(settings: Any, dtype: torch.dtype, device: str = "cpu") -> Any:
    """The camera, every tensor of it in that precision and there."""
    tensors = {name: value for name, value in settings._asdict().items() if isinstance(value, Tensor)}
    return settings._replace(**{name: value.to(device, dtype) for name, value in tensors.items()})


def pulled(
    render: Any,
    settings: Any,
    inputs: dict[str, Tensor],
    dtype: torch.dtype,
    outputs: Sequence[int] | None = None,
    columns: int = 3,
    names: Sequence[str] = ARGUMENTS,
    device: str = "cpu",
) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """What is drawn, and the gradients of a random weighting of it.

    Args:
        outputs: which of the results are weighted; None for all but the radii, which come second.
        columns: of `means2D`.
        names: of the arguments of `render` behind the settings.
    """
    leaves = {name: value.detach().to(dtype).to(device).requires_grad_() for name, value in inputs.items()}
    screen = torch.zeros(len(leaves["means3D"]), columns, dtype=dtype, device=device, requires_grad=True)
    leaves["means2D"] = screen
    drawn = tuple(render(in_precision(settings, dtype, device), *(leaves.get(name) for name in names)))
    generator = torch.Generator().manual_seed(5)
    loss = drawn[0].sum() * 0
    for k, image in enumerate(drawn):
        weight = torch.randn(image.shape, generator=generator, dtype=torch.float64)
        if k != 1 and (outputs is None or k in outputs):
            loss = loss + (image * weight.to(dtype).to(device)).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    pairs = zip(leaves.items(), gradients, strict=True)
    return drawn, {name: torch.zeros_like(leaf) if grad is None else grad for (name, leaf), grad in pairs}


def assert_agree(
    reference: Any,
    kernels: Any,
    settings: Any,
    inputs: dict[str, Tensor],
    dtype: torch.dtype,
    value: float,
    gradient: float,
    **options: Any,
) -> tuple[Tensor, ...]:
    """What the kernels draw, once it and its gradients equal the reference's to within these tolerances.

    In float32 the kernels get what the reference gets in float64.
    """
    inputs = {name: item.to(dtype).double() for name, item in inputs.items()}
    expected, expected_gradients = pulled(reference, settings, inputs, torch.float64, **options)
    drawn, gradients = pulled(kernels, settings, inputs, dtype, **options)
    assert torch.equal(drawn[1], expected[1])
    for k, image in enumerate(expected):
        if k != 1:
            error = float((drawn[k].double() - image).detach().abs().max())
            assert error <= value * max(1.0, float(image.detach().abs().max())), f"image {k}"
    for name, target in expected_gradients.items():
        if target.numel():
            scale = float(target.abs().max())
            error = float((gradients[name].double() - target).abs().max())
            assert error <= gradient * scale + 1e-12, f"{name}: {error:.2e} of {scale:.2e}"
    return drawn
