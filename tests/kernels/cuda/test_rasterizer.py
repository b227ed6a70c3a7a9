"""The rasterizer's CUDA kernels, emulated, against the pure-PyTorch rasterizer: images, radii and every gradient.

In float64 both must agree to rounding, which leaves no room for another formula; in float32, as on a GPU, to the tolerance
that the pure-PyTorch one is held to.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.install.nvrtc import _OPTIONS
from splatfix.kernels import rasterizer, rasterizer_cuda
from splatfix.kernels.rasterizer import GaussianRasterizationSettings
from tests.kernels.cuda.compare import BOTH, assert_agree, pulled
from tests.kernels.cuda.emulator import emulated_module
from tests.kernels.rasterizer_compare import cloud, look_at, one_thread  # noqa: F401


def compare(
    settings: GaussianRasterizationSettings,
    inputs: dict[str, Tensor],
    dtype: torch.dtype,
    outputs: tuple[int, ...] = (0, 2, 3, 4),
    columns: int = 3,
    slack: float = 1.0,
) -> tuple[Tensor, ...]:
    value, gradient = (1e-12, 1e-10) if dtype == torch.float64 else (1e-5 * slack, 1e-4 * slack)
    both = (rasterizer.rasterize, rasterizer_cuda.rasterize)
    return assert_agree(*both, settings, inputs, dtype, value, gradient, outputs=outputs, columns=columns)


@BOTH
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"antialiasing": True},
        {"kernel_size": 0.1},
        {"kernel_size": 0.0},
        {"scale_modifier": 0.7},
        {"sh_degree": 0},
        {"sh_degree": 1},
        {"sh_degree": 2},
        {"scale_modifier": 0.7, "upstream_gradients": True},
        {"antialiasing": True, "upstream_gradients": True},
        {"kernel_size": 0.1, "upstream_gradients": True},
        {"compact_box": 0.5},
        {"compact_box": 1.0},
        {"compact_box": 1.5},
        {
            "subpixel_offset": torch.rand(
                37, 50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
            )
            - 0.5
        },
    ],
    ids=lambda options: (
        " ".join(f"{name} {value}" for name, value in options.items() if name != "subpixel_offset") or "plain"
    ),
)
@pytest.mark.parametrize("kind", ["scales", "covariance"])
def test_options(options: dict[str, Any], kind: str, dtype: torch.dtype, emulated: None) -> None:
    inputs = cloud(40, covariance=kind == "covariance", precomputed=kind == "covariance")
    compare(look_at(50, 37, **options), inputs, dtype)


@BOTH
@pytest.mark.parametrize("size", [(1, 1), (16, 16), (17, 15), (33, 65), (5, 80)])
def test_images_that_are_no_whole_tiles(size: tuple[int, int], dtype: torch.dtype, emulated: None) -> None:
    compare(look_at(*size), cloud(60), dtype)


@BOTH
@pytest.mark.parametrize("outputs", [(0,), (2,), (3,), (4,), (0, 4)], ids=str)
def test_gradient_of_some_outputs(outputs: tuple[int, ...], dtype: torch.dtype, emulated: None) -> None:
    compare(look_at(40, 30), cloud(50), dtype, outputs)


@BOTH
@pytest.mark.parametrize("columns", [2, 3, 4])
def test_the_densification_statistic(columns: int, dtype: torch.dtype, emulated: None) -> None:
    compare(look_at(40, 30, kernel_size=0.1), cloud(50), dtype, columns=columns)


@pytest.mark.parametrize(
    "channels", [1, pytest.param(8, marks=pytest.mark.slow), pytest.param(19, marks=pytest.mark.slow)]
)
def test_channels(channels: int, emulated: None) -> None:
    """In float64 only: every number of channels is a compilation."""
    inputs = cloud(30, precomputed=True)
    inputs["colors_precomp"] = torch.rand(30, channels, dtype=torch.float64)
    compare(look_at(40, 30, bg=torch.rand(channels, dtype=torch.float64)), inputs, torch.float64)


@BOTH
def test_more_than_a_turn_of_gaussians_on_a_tile(dtype: torch.dtype, emulated: None) -> None:
    """Faint ones, so that pixels see 700 of them: three turns of the backward pass."""
    inputs = cloud(700, spread=0.3)
    inputs["opacities"] = inputs["opacities"] * 0.02 + 0.005
    result = compare(look_at(24, 20), inputs, dtype, slack=3)
    assert float(result[3].detach().min()) < 0.999


@BOTH
def test_pixels_that_stop(dtype: torch.dtype, emulated: None) -> None:
    inputs = cloud(300, spread=0.3)
    inputs["opacities"] = torch.full_like(inputs["opacities"], 1.0)
    result = compare(look_at(24, 20), inputs, dtype, slack=3)
    assert float(result[3].detach().max()) > 0.999


ODD = {
    "behind and before": {"spread": 5.0},
    "huge": {"size": (20.0, 60.0)},
    "tiny": {"size": (1e-6, 1e-5)},
    "needles": {"size": (1e-3, 2.0)},
    "inside": {"spread": 0.01, "size": (3.0, 6.0)},
}


@BOTH
@pytest.mark.parametrize("kind", ODD)
def test_odd_scenes(kind: str, dtype: torch.dtype, emulated: None) -> None:
    compare(look_at(45, 33), cloud(80, **ODD[kind]), dtype, slack=20)


@BOTH
def test_opacities_at_their_ends(dtype: torch.dtype, emulated: None) -> None:
    inputs = cloud(60)
    values = torch.tensor([0.0, 1.0, 1 / 255, 0.0039, 0.004, 0.99, 1e-20], dtype=torch.float64)
    inputs["opacities"] = values.repeat(9)[:60, None]
    compare(look_at(40, 30), inputs, dtype)


@BOTH
def test_what_is_not_finite_is_left_out(dtype: torch.dtype, emulated: None) -> None:
    inputs = cloud(20)
    inputs["means3D"][1, 0] = float("nan")
    inputs["scales"][2, 1] = float("inf")
    inputs["rotations"][3, 2] = float("nan")
    inputs["opacities"][4] = float("nan")
    inputs["shs"][5, 3, 1] = float("-inf")
    result = compare(look_at(40, 30), inputs, dtype)
    assert not result[1][1:6].any() and result[1].any()


@BOTH
@pytest.mark.parametrize("case", ["none", "one", "all behind"])
def test_few(case: str, dtype: torch.dtype, emulated: None) -> None:
    inputs = cloud(3)
    if case == "none":
        inputs = {name: value[:0] for name, value in inputs.items()}
    if case == "one":
        inputs = {name: value[:1] for name, value in inputs.items()}
    if case == "all behind":
        inputs["means3D"] = inputs["means3D"] - torch.tensor([0.0, 0.0, 20.0])
    compare(look_at(21, 13), inputs, dtype)


def test_equal_depths_keep_their_order(emulated: None) -> None:
    inputs = {
        name: value[:1].repeat(200, *[1] * (value.dim() - 1))
        for name, value in cloud(1, precomputed=True).items()
    }
    inputs["colors_precomp"] = torch.rand(200, 3, dtype=torch.float64)
    compare(look_at(24, 20), inputs, torch.float64)


def test_one_that_a_warp_lists(emulated: None) -> None:
    """More tiles than a thread lists alone, beside small ones in the same warp."""
    inputs = cloud(40, size=(0.01, 0.05))
    inputs["scales"][7] = 3.0
    inputs["opacities"][7] = 0.3
    compare(look_at(260, 200), inputs, torch.float64)


def test_more_pairs_than_can_be_counted(emulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rasterizer_cuda, "_MOST_PAIRS", 10)
    with pytest.raises(RuntimeError, match="render it in parts"):
        compare(look_at(40, 30), cloud(40), torch.float32)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"bg": torch.zeros(9), "kernel_size": 0.1}, "absolute gradients of more than 8 channels"),
        ({"bg": torch.zeros(9)}, ""),
        ({"kernel_size": 0.1}, ""),
    ],
)
def test_what_the_kernels_do_not_serve(options: dict[str, Any], why: str) -> None:
    result = rasterizer_cuda.refusal(look_at(8, 8, **options), torch.zeros(1, 3, requires_grad=True))
    assert why in result and bool(result) == bool(why)


def test_what_an_installation_compiles_is_what_a_training_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that a drop-in brings along is found by its options: others would be compiled again, unnoticed."""
    requested: list[Any] = []

    def module(name: str, defines: Any, like: Tensor) -> Any:
        requested.append((name, defines))
        return emulated_module(name, defines, like)

    monkeypatch.setattr(rasterizer_cuda, "module", module)
    inputs = cloud(5)
    for outputs, columns in itertools.product(((0,), (0, 4)), (3, 4)):
        pulled(rasterizer_cuda.rasterize, look_at(20, 20), inputs, torch.float64, outputs, columns)
    sources = ("projection.cu", "binning.cu", "blending.cu")
    carried = [(name, options) for name in sources for options in _OPTIONS.get(name, ({},))]
    assert all(one in requested for one in carried) and all(one in carried for one in requested)


@pytest.mark.slow
def test_a_hundred_thousand(emulated: None) -> None:
    """Every gradient of a hundred thousand Gaussians: lists of many turns, and Gaussians that no pixel takes.

    In float64 only: among so many, some depths and some alphas are equal in float32, and fall to the other side.
    """
    inputs = cloud(100_000, spread=2.0, size=(0.002, 0.02), degree=1)
    result = compare(look_at(160, 120, sh_degree=1), inputs, torch.float64)
    assert int((result[1] > 0).sum()) > 50_000
