"""What is drawn is the caller's: edited in place it gives the gradients of the same edit out of place."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from splatfix.kernels import rasterizer, rasterizer_cuda, ssim_cuda, surfels, surfels_cuda
from splatfix.kernels.ssim import fused_ssim

from .compare import ARGUMENTS, SURFELS
from .scenes import Inputs, cloud, discs, look_at, rand

SETTINGS = look_at(40, 30)
SPLATS = {
    "Gaussians": (rasterizer.rasterize, cloud, ARGUMENTS, 5),
    "Gaussians by CUDA kernels": (rasterizer_cuda.rasterize, cloud, ARGUMENTS, 5),
    "surfels": (surfels.rasterize_surfels, discs, SURFELS, 3),
    "surfels by CUDA kernels": (surfels_cuda.rasterize, discs, SURFELS, 3),
}


def gradients(
    draw: Callable[[Inputs], Sequence[Tensor]], inputs: Inputs, edit: Callable[[list[Tensor]], None]
) -> list[Tensor]:
    """Of a random weighting of what is drawn, once that is edited."""
    leaves = {name: value.clone().requires_grad_() for name, value in inputs.items()}
    drawn = list(draw(leaves))
    edit(drawn)
    loss = sum((item * rand(*item.shape, seed=k)).sum() for k, item in enumerate(drawn) if item.requires_grad)
    assert isinstance(loss, Tensor)
    return list(torch.autograd.grad(loss, list(leaves.values())))


def assert_callers_own(draw: Callable[[Inputs], Sequence[Tensor]], inputs: Inputs, which: int) -> None:
    def out_of_place(drawn: list[Tensor]) -> None:
        if drawn[which].requires_grad:
            drawn[which] = drawn[which] * 0.5

    def in_place(drawn: list[Tensor]) -> None:
        drawn[which].mul_(0.5 if drawn[which].requires_grad else 0)

    def unseen_by_autograd(drawn: list[Tensor]) -> None:
        original = drawn[which]
        out_of_place(drawn)
        original.data.zero_()

    expected = gradients(draw, inputs, out_of_place)
    assert any(bool(one.any()) for one in expected)
    for edit in (in_place, unseen_by_autograd):
        for one, two in zip(gradients(draw, inputs, edit), expected, strict=True):
            torch.testing.assert_close(one, two)


@pytest.mark.parametrize(
    ("kind", "which"), [(kind, which) for kind in SPLATS for which in range(SPLATS[kind][3])]
)
def test_images(kind: str, which: int, emulated: None) -> None:
    render, scene, names, _ = SPLATS[kind]
    inputs = scene(25) | {"means2D": torch.zeros(25, 3, dtype=torch.float64)}
    assert_callers_own(lambda leaves: render(SETTINGS, *(leaves.get(name) for name in names)), inputs, which)


@pytest.mark.parametrize(
    "mean", [fused_ssim, lambda first, second: ssim_cuda.mean_ssim(first, second, "same")]
)
def test_similarity(mean: Callable[..., Tensor], emulated: None) -> None:
    second = rand(1, 3, 20, 30, seed=1)
    assert_callers_own(lambda leaves: [mean(leaves["first"], second)], {"first": rand(1, 3, 20, 30)}, 0)
