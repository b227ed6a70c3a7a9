"""ssim.cu, emulated, against the pure-PyTorch SSIM, which test_ssim.py of the folder above holds against its definition."""

from __future__ import annotations

import pytest
import torch

from splatfix.kernels.ssim import fused_ssim
from splatfix.kernels.ssim_cuda import mean_ssim

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
SHAPES = [
    (1, 3, 40, 70),
    (2, 1, 7, 5),
    (1, 2, 33, 64),
    (1, 1, 1, 1),
    (1, 1, 32, 32),
    (1, 1, 1, 97),
    (2, 2, 11, 11),
]


@BOTH
@pytest.mark.parametrize(
    ("shape", "padding"),
    [
        (shape, padding)
        for shape in SHAPES
        for padding in ("same", "valid")
        if padding == "same" or min(shape[2:]) >= 11
    ],
)
@pytest.mark.parametrize("kind", ["noise", "alike", "flat", "beyond"])
def test_value_and_gradient(
    shape: tuple[int, ...], padding: str, dtype: torch.dtype, kind: str, emulated: None
) -> None:
    generator = torch.Generator().manual_seed(1)
    second = torch.rand(shape, generator=generator, dtype=dtype)
    first = {
        "noise": torch.rand(shape, generator=generator, dtype=dtype),
        "alike": second + 0.01 * torch.randn(shape, generator=generator, dtype=dtype),
        "flat": torch.full(shape, 0.25, dtype=dtype),
        "beyond": 3 * torch.randn(shape, generator=generator, dtype=dtype),
    }[kind]
    here, there = first.clone().requires_grad_(), first.clone().requires_grad_()
    expected = fused_ssim(there, second, padding)
    result = mean_ssim(here, second, padding)
    (3 * expected).backward()
    (3 * result).backward()
    near = 1e-13 if dtype == torch.float64 else 2e-6
    assert abs(float(result.detach() - expected.detach())) <= near
    assert here.grad is not None and there.grad is not None
    # one pixel, or images nearly alike, are all cancellation: both round, by up to 4e-5 of the little that is left
    slack = 50 if shape == (1, 1, 1, 1) or kind == "alike" else 5
    assert float((here.grad - there.grad).abs().max()) <= slack * near * max(
        float(there.grad.abs().max()), 1e-3
    )


def test_without_a_gradient(emulated: None) -> None:
    first, second = torch.rand(1, 3, 20, 20), torch.rand(1, 3, 20, 20)
    result = mean_ssim(first, second, "same")
    assert not result.requires_grad and float((result - fused_ssim(first, second)).abs()) < 1e-6


def test_the_same_bits_every_time(emulated: None) -> None:
    """Whatever the order of threads and blocks."""
    first, second = torch.rand(1, 2, 70, 40), torch.rand(1, 2, 70, 40)
    assert len({mean_ssim(first, second, "same").item() for _ in range(4)}) == 1


def test_more_images_than_a_grid_has(emulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (
        torch.rand(2, 4, 13, 12, dtype=torch.float64),
        torch.rand(2, 4, 13, 12, dtype=torch.float64),
    )
    here, there = first.clone().requires_grad_(), first.clone().requires_grad_()
    fused_ssim(there, second, "valid").backward()
    monkeypatch.setattr("splatfix.kernels.ssim_cuda._MOST_IMAGES", 3)
    result = mean_ssim(here, second, "valid")
    result.backward()
    assert float((result - fused_ssim(first, second, "valid")).detach().abs()) < 1e-13
    assert (
        here.grad is not None and there.grad is not None and torch.allclose(here.grad, there.grad, atol=1e-15)
    )
