"""From what a user calls to the kernels: tensors that say they are on a GPU, and emulated kernels that get them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.kernels import nvrtc
from splatfix.kernels.contributions import contributions
from splatfix.kernels.knn import distCUDA2
from splatfix.kernels.rasterizer import rasterize
from splatfix.kernels.ssim import fused_ssim
from splatfix.kernels.surfels import rasterize_surfels
from tests.kernels.cuda.compare import in_precision
from tests.kernels.rasterizer_compare import cloud, look_at, one_thread  # noqa: F401
from tests.kernels.test_surfels import discs


class OnGpu(torch.Tensor):
    is_cuda = True  # type: ignore[assignment]


@pytest.fixture
def chosen(emulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATFIX_KERNELS", "nvrtc")
    monkeypatch.setattr(nvrtc, "ran", {})


def moved(values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.float().as_subclass(OnGpu) for name, value in values.items()}


def near(found: Tensor, expected: Tensor) -> None:
    apart = (found.as_subclass(Tensor).double() - expected.double()).detach().abs().max()
    assert float(apart) < 2e-5 * max(1.0, float(expected.detach().abs().max()))


def settings(**options: Any) -> Any:
    return in_precision(look_at(40, 30, **options), torch.float32)


@pytest.mark.parametrize("options", [{}, {"compact_box": 0.5}, {"upstream_gradients": True}], ids=str)
def test_gaussians(options: dict[str, Any], chosen: None) -> None:
    inputs = cloud(40)
    result = rasterize(settings(**options), means2D=None, **moved(inputs))
    assert nvrtc.ran == {"rasterizer": "nvrtc"}
    for one, two in zip(result, rasterize(look_at(40, 30, **options), means2D=None, **inputs), strict=True):
        near(one, two)


def test_surfels(chosen: None) -> None:
    inputs = discs(25, seed=1)
    result = rasterize_surfels(settings(), means2D=None, **moved(inputs))
    assert nvrtc.ran == {"surfels": "nvrtc"}
    for one, two in zip(result, rasterize_surfels(look_at(40, 30), means2D=None, **inputs), strict=True):
        near(one, two)
    inputs["colors_precomp"] = torch.rand(25, 9, dtype=torch.float64)
    del inputs["shs"]
    with pytest.raises(nvrtc.NoKernels, match="more than 8 channels"):
        rasterize_surfels(settings(bg=torch.zeros(9)), means2D=None, **moved(inputs))


def test_contributions(chosen: None) -> None:
    inputs = {name: value for name, value in cloud(40).items() if name != "shs"}
    weights = torch.rand(30, 40, dtype=torch.float64)
    result = contributions(settings(), **moved(inputs), pixel_weights=weights.float().as_subclass(OnGpu))
    assert nvrtc.ran == {"contributions": "nvrtc"}
    expected = contributions(look_at(40, 30), **inputs, pixel_weights=weights)
    assert torch.equal(result.pixels.as_subclass(Tensor), expected.pixels)
    for one, two in zip(result[1:], expected[1:], strict=True):
        near(one / two.abs().max(), two / two.abs().max())


def test_ssim_and_neighbors(chosen: None) -> None:
    first, second = torch.rand(1, 3, 20, 30), torch.rand(1, 3, 20, 30)
    result = fused_ssim(first.as_subclass(OnGpu), second.as_subclass(OnGpu))
    near(result, fused_ssim(first, second))
    points = torch.rand(100, 3)
    near(distCUDA2(points.as_subclass(OnGpu)), distCUDA2(points))
    assert nvrtc.ran == {"ssim": "nvrtc", "knn": "nvrtc"}
