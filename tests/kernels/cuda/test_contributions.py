"""contributions.cu, emulated, against the pure-PyTorch sums."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from splatfix.kernels import contributions_cuda
from splatfix.kernels.contributions import contributions
from tests.kernels.cuda.compare import BOTH, in_precision
from tests.kernels.cuda.emulator import COMPILER, KernelError
from tests.kernels.cuda.test_sabotage import changed
from tests.kernels.rasterizer_compare import cloud, look_at, one_thread  # noqa: F401


def compare(settings: Any, inputs: dict[str, Any], dtype: torch.dtype, weighted: bool = True) -> None:
    size = (settings.image_height, settings.image_width)
    weights = torch.rand(size, generator=torch.Generator().manual_seed(3), dtype=dtype) if weighted else None
    names = ("means3D", "opacities", "scales", "rotations", "cov3D_precomp")
    single = [None if name not in inputs else inputs[name].to(dtype) for name in names]
    exact = [None if one is None else one.double() for one in single]
    result = contributions_cuda.sums(in_precision(settings, dtype), *single, weights)
    expected = torch.stack(contributions(settings, *exact, weights), dim=1)
    scale = expected.abs().amax(0).clamp_min(1.0)
    near = 1e-12 if dtype == torch.float64 else 2e-5
    assert float(((result.double() - expected).abs() / scale).max()) <= near
    if len(expected) > 1:
        assert expected.any(0).tolist() == [True, weighted, True, True]


@BOTH
@pytest.mark.parametrize("options", [{}, {"compact_box": 0.5}, {"antialiasing": True}], ids=str)
def test_sums(options: dict[str, Any], dtype: torch.dtype, emulated: None) -> None:
    compare(look_at(50, 37, **options), cloud(60), dtype)
    compare(look_at(33, 20, **options), cloud(60, covariance=True), dtype, weighted=False)


@BOTH
def test_pixels_that_stop(dtype: torch.dtype, emulated: None) -> None:
    inputs = cloud(400, spread=0.3)
    inputs["opacities"] = torch.full_like(inputs["opacities"], 0.9)
    compare(look_at(24, 20), inputs, dtype)


def test_one(emulated: None) -> None:
    compare(look_at(20, 20), cloud(1), torch.float64)
    assert not contributions_cuda.sums(
        look_at(8, 8), torch.zeros(0, 3), torch.zeros(0, 1), *[None] * 4
    ).numel()


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if (takes && after < STOP) { done = true; takes = false; }", ""),
        ("takes ? sqrt(dx * dx + dy * dy)", "takes ? dx * dx + dy * dy"),
        ("(real)__popc(those)", "(real)1"),
        ("alpha * left : ", "alpha : "),
        ("for (int d = WARP / 2; d;", "for (int d = WARP / 4; d;"),
        ("        __syncthreads();\n", ""),
        ("if (threadIdx.x % WARP) continue;", ""),
    ],
)
def test_what_is_wrong_is_seen(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = changed("contributions.cu", right, wrong)
    for user in ("rasterizer_cuda", "contributions_cuda"):
        monkeypatch.setattr(f"splatfix.kernels.{user}.module", module)
    inputs = cloud(400, spread=0.3)
    with pytest.raises((AssertionError, KernelError)):
        compare(look_at(24, 20), inputs, torch.float64)
