"""contributions.cu, emulated, against the pure-PyTorch sums."""

from typing import Any

import pytest
import torch

from splatfix.kernels import contributions_cuda, rasterizer_cuda
from splatfix.kernels.contributions import contributions

from ..compare import BOTH, assert_close, gaussians_of, in_precision
from ..gaussian_cases import with_opacities
from ..scenes import Inputs, cloud, look_at, rand

pytestmark = pytest.mark.usefixtures("emulated")


def compare(settings: Any, inputs: Inputs, dtype: torch.dtype = torch.float64, weighted: bool = True) -> None:
    weights = rand(settings.image_height, settings.image_width, seed=3).to(dtype) if weighted else None
    given = gaussians_of(inputs, dtype, colors=1)
    result = contributions_cuda.sums(in_precision(settings, dtype), given, weights)
    exact = {name: inputs[name].to(dtype).double() for name in inputs if name != "shs"}
    expected = torch.stack(contributions(settings, **exact, pixel_weights=weights), dim=1)
    near = 1e-12 if dtype == torch.float64 else 2e-5
    for column, sums in enumerate(expected.unbind(1)):
        assert_close(f"column {column}", result[column], sums, near, least=1.0)
    used = torch.zeros(len(expected), dtype=torch.int32)
    many = in_precision(settings._replace(bg=torch.zeros(11)), dtype)  # channels of two launches
    rasterizer_cuda.rasterize(many, *gaussians_of(inputs, dtype, colors=11), used=used)
    assert torch.equal(used, result[0].clamp_max(1))
    if len(expected) > 1:
        assert expected.any(0).tolist() == [True, weighted, True, True, True, True, True]


@BOTH
@pytest.mark.parametrize("options", [{}, {"compact_box": 0.5}, {"antialiasing": True}], ids=str)
def test_sums(options: dict[str, Any], dtype: torch.dtype) -> None:
    compare(look_at(50, 37, **options), cloud(60), dtype)
    compare(look_at(33, 20, **options), cloud(60, covariance=True), dtype, weighted=False)


@BOTH
def test_pixels_that_stop(dtype: torch.dtype) -> None:
    compare(look_at(24, 20), with_opacities(cloud(400, spread=0.3), 0.9), dtype)


def test_one() -> None:
    compare(look_at(20, 20), cloud(1))
    assert not contributions_cuda.sums(look_at(8, 8), gaussians_of(cloud(0), colors=1), None)[0].numel()


def test_more_pixels_than_single_precision_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of Gaussians that 2^24 pixels of a large image have taken before."""
    before, zeros = 1 << 24, torch.zeros
    call = (
        in_precision(look_at(33, 20), torch.float32),
        gaussians_of(cloud(60), torch.float32, colors=1),
        None,
    )
    expected = contributions_cuda.sums(*call)[0]
    counted = {3: before, 2: 0}  # the ranges of the tiles are pairs
    monkeypatch.setattr(torch, "zeros", lambda *size, **how: zeros(*size, **how) + counted[size[-1]])
    pixels = contributions_cuda.sums(*call)[0]
    assert bool((expected % 2).any()) and torch.equal(pixels - before, expected)
