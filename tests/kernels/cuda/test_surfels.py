"""surfels.cu, emulated, against the pure-PyTorch surfels: image, maps, radii and every gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.install.nvrtc import _OPTIONS
from splatfix.kernels import surfels_cuda
from splatfix.kernels.surfels import rasterize_surfels
from splatfix.knowledge.dropins import dropin_of
from tests.kernels.cuda.compare import BOTH, SURFELS, assert_agree, pulled
from tests.kernels.cuda.emulator import emulated_module
from tests.kernels.rasterizer_compare import look_at, one_thread  # noqa: F401
from tests.kernels.surfel_reference import render
from tests.kernels.test_surfels import SCENES, discs

COLOR, *MAPS = (0, *range(2, 9))
"""What `in_one` gives: color, radii, and depth, alpha, normal (three), median and distortion."""


def in_one(render: Any) -> Any:
    """The maps one by one."""

    def drawn(*arguments: Any) -> tuple[Tensor, ...]:
        color, radii, maps = render(*arguments)
        return (color, radii, *maps)

    return drawn


def compare(
    settings: Any,
    inputs: dict[str, Tensor],
    dtype: torch.dtype,
    outputs: tuple[int, ...] | None = None,
    value: float = 2e-5,
    gradient: float = 2e-4,
) -> tuple[Tensor, ...]:
    """`value` and `gradient`: the tolerances in float32; 1e-10 and 1e-8 in float64."""
    if dtype == torch.float64:
        value, gradient = 1e-10, 1e-8
    both = (in_one(rasterize_surfels), in_one(surfels_cuda.rasterize))
    return assert_agree(*both, settings, inputs, dtype, value, gradient, outputs=outputs, names=SURFELS)


@BOTH
@pytest.mark.parametrize("name", SCENES)
def test_scenes(name: str, dtype: torch.dtype, emulated: None) -> None:
    slack = 3.0 if name.startswith("edge-on") else 1.0
    compare(look_at(40, 30), SCENES[name](), dtype, value=2e-5 * slack, gradient=2e-4 * slack)


@BOTH
@pytest.mark.parametrize("output", [COLOR, *MAPS])
def test_gradient_of_each(output: int, dtype: torch.dtype, emulated: None) -> None:
    compare(look_at(40, 30), discs(25, seed=1), dtype, (output,))


@BOTH
@pytest.mark.parametrize("options", [{"scale_modifier": 0.7}, {"sh_degree": 0}, {"sh_degree": 2}], ids=str)
def test_options(options: dict[str, Any], dtype: torch.dtype, emulated: None) -> None:
    compare(look_at(50, 37, **options), discs(25, seed=2), dtype)


@BOTH
@pytest.mark.parametrize("size", [(1, 1), (16, 16), (17, 15), (33, 65)])
def test_images_that_are_no_whole_tiles(size: tuple[int, int], dtype: torch.dtype, emulated: None) -> None:
    compare(look_at(*size), discs(40, seed=3), dtype)


@BOTH
def test_given_transforms(dtype: torch.dtype, emulated: None) -> None:
    """Tu, Tv, Tw in pixels in the place of scales and rotations."""
    inputs, settings = discs(25, seed=1, precomputed=True), look_at(40, 30)
    planes = render(settings, **inputs).planes.detach().reshape(25, 9)
    given = {name: inputs[name] for name in ("means3D", "opacities", "colors_precomp")}
    compare(settings, {**given, "transforms": planes}, dtype)


@BOTH
def test_more_than_a_turn_of_surfels_on_a_tile(dtype: torch.dtype, emulated: None) -> None:
    """Faint ones, so that pixels see hundreds of them."""
    inputs = discs(600, seed=4, spread=0.4)
    inputs["opacities"] = inputs["opacities"] * 0.02 + 0.006
    result = compare(look_at(24, 20), inputs, dtype, value=1e-4, gradient=1e-3)
    assert 0.5 < float(result[3].detach().max()) < 0.9999


@BOTH
def test_what_is_not_finite_is_left_out(dtype: torch.dtype, emulated: None) -> None:
    inputs = discs(20, seed=5)
    inputs["means3D"][1, 0] = float("nan")
    inputs["scales"][2, 1] = float("inf")
    inputs["rotations"][3, 2] = float("nan")
    inputs["opacities"][4] = float("nan")
    inputs["shs"][5, 3, 1] = float("-inf")
    result = compare(look_at(40, 30), inputs, dtype)
    assert not result[1][1:6].any() and result[1].any()


def test_opacities_at_their_ends(emulated: None) -> None:
    inputs = discs(60, seed=6)
    values = torch.tensor([0.0, 1.0, 1 / 255, 0.0039, 0.004, 0.99, 1e-20], dtype=torch.float64)
    inputs["opacities"] = values.repeat(9)[:60, None]
    compare(look_at(40, 30), inputs, torch.float64)


@pytest.mark.parametrize("channels", [1, 8])
def test_channels(channels: int, emulated: None) -> None:
    inputs = discs(30, seed=7, precomputed=True)
    inputs["colors_precomp"] = torch.rand(30, channels, dtype=torch.float64)
    compare(look_at(40, 30, bg=torch.rand(channels, dtype=torch.float64)), inputs, torch.float64)


def test_one_that_a_warp_lists(emulated: None) -> None:
    """More tiles than a thread lists alone, beside small ones in the same warp."""
    inputs = discs(40, seed=8, size=(0.01, 0.05))
    inputs["scales"][7] = 3.0
    inputs["opacities"][7] = 0.3
    compare(look_at(260, 200), inputs, torch.float64)


def test_what_comes_back_for_a_pixel_that_meets_nothing_is_not_read(emulated: None) -> None:
    """2DGS divides depth by alpha: there it is NaN."""
    inputs = {name: value.requires_grad_() for name, value in discs(3, seed=9, size=(0.05, 0.1)).items()}
    _, _, maps = surfels_cuda.rasterize(look_at(60, 50), *(inputs.get(name) for name in SURFELS))
    assert float(maps[1].detach().min()) == 0
    (maps[0] / maps[1]).sum().backward()
    assert all(bool(value.grad.isfinite().all()) for value in inputs.values() if value.grad is not None)


def test_what_the_kernels_do_not_serve() -> None:
    assert "more than 8 channels" in surfels_cuda.refusal(look_at(8, 8, bg=torch.zeros(9)))
    assert not surfels_cuda.refusal(look_at(8, 8))


def test_what_an_installation_compiles_is_what_a_training_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that the drop-in brings along is found by its options: others would be compiled again, unnoticed."""
    requested: list[Any] = []

    def module(name: str, defines: Any, like: Tensor) -> Any:
        requested.append((name, defines))
        return emulated_module(name, defines, like)

    for user in ("rasterizer_cuda", "surfels_cuda"):
        monkeypatch.setattr(f"splatfix.kernels.{user}.module", module)
    pulled(surfels_cuda.rasterize, look_at(20, 20), discs(5), torch.float64, (COLOR,), names=SURFELS)
    sources = [
        Path(name).name for name in dropin_of("diff-surfel-rasterization").cuda if name.endswith(".cu")
    ]
    carried = [(name, options) for name in sources for options in _OPTIONS.get(name, ({},))]
    assert all(one in requested for one in carried) and all(one in carried for one in requested)


@pytest.mark.slow
def test_a_hundred_thousand(emulated: None) -> None:
    """In float64 only, as for Gaussians: among so many some fall to the other side of a threshold."""
    inputs = discs(100_000, seed=10, spread=2.0, size=(0.002, 0.02), degree=0)
    result = compare(look_at(80, 60, sh_degree=0), inputs, torch.float64)
    assert int((result[1] > 0).sum()) > 50_000
