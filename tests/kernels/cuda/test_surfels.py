"""surfels.cu, emulated, against the pure-PyTorch surfels: image, maps, radii and every gradient.

What holds of Gaussians in the same words is asked of both here.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from splatfix.kernels import surfels_cuda
from splatfix.kernels.surfels import rasterize_surfels

from ..compare import BOTH, SURFELS, Drawn, assert_agree, map_by_map
from ..gaussian_cases import with_opacities
from ..scenes import Inputs, cloud, discs, look_at, rand
from ..surfel_cases import CASES
from . import test_rasterizer as gaussians

pytestmark = pytest.mark.usefixtures("emulated")

COLOR, *MAPS = (0, *range(2, 9))
"""What `map_by_map` gives: color, radii, and depth, alpha, normal (three), median and distortion."""


def compare(
    settings: Any, inputs: Inputs, dtype: torch.dtype = torch.float64, slack: float = 1.0, **options: Any
) -> Drawn:
    value, gradient = (1e-10, 1e-8) if dtype == torch.float64 else (2e-5 * slack, 2e-4 * slack)
    both = (map_by_map(rasterize_surfels), map_by_map(surfels_cuda.rasterize))
    return assert_agree(*both, settings, inputs, dtype, value, gradient, names=SURFELS, **options)[0]


SPLATS = pytest.mark.parametrize(
    ("compare", "scene"), [(gaussians.compare, cloud), (compare, discs)], ids=["Gaussians", "surfels"]
)


@BOTH
@pytest.mark.parametrize("name", CASES)
def test_they_follow_pytorch(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]()
    compare(case.settings, case.inputs, dtype, case.slack)


@BOTH
@pytest.mark.parametrize("output", [COLOR, *MAPS])
def test_gradient_of_each(output: int, dtype: torch.dtype) -> None:
    compare(look_at(40, 30), discs(25, seed=1), dtype, outputs=(output,))


@BOTH
def test_more_than_a_turn_of_surfels_on_a_tile(dtype: torch.dtype) -> None:
    """Faint ones, so that pixels see hundreds of them."""
    inputs = discs(600, seed=4, spread=0.4)
    inputs = with_opacities(inputs, inputs["opacities"] * 0.02 + 0.006)
    result = compare(look_at(24, 20), inputs, dtype, slack=5)
    assert 0.5 < float(result[3].detach().max()) < 0.9999


@BOTH
@SPLATS
def test_what_is_not_finite_is_left_out(
    compare: Callable[..., Drawn], scene: Callable[..., Inputs], dtype: torch.dtype
) -> None:
    inputs = scene(20)
    inputs["means3D"][1, 0] = float("nan")
    inputs["scales"][2, 1] = float("inf")
    inputs["rotations"][3, 2] = float("nan")
    inputs["opacities"][4] = float("nan")
    inputs["shs"][5, 3, 1] = float("-inf")
    result = compare(look_at(40, 30), inputs, dtype)
    assert not result[1][1:6].any() and result[1].any()


@pytest.mark.parametrize("channels", [1, 8])
def test_channels(channels: int) -> None:
    inputs = discs(30, seed=7, precomputed=True) | {"colors_precomp": rand(30, channels)}
    compare(look_at(40, 30, bg=rand(channels)), inputs)


@SPLATS
def test_one_that_a_warp_lists(compare: Callable[..., Drawn], scene: Callable[..., Inputs]) -> None:
    """More tiles than a thread lists alone, beside small ones in the same warp."""
    inputs = scene(40, size=(0.01, 0.05))
    inputs["scales"][7] = 3.0
    inputs["opacities"][7] = 0.3
    compare(look_at(260, 200), inputs)


def test_what_the_kernels_do_not_serve() -> None:
    assert "more than 8 channels" in surfels_cuda.refusal(look_at(8, 8, bg=torch.zeros(9)))
    assert not surfels_cuda.refusal(look_at(8, 8))
