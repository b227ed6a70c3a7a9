"""The rasterizer's CUDA kernels, emulated, against the pure-PyTorch rasterizer: images, radii and every gradient.

In float64 both must agree to rounding, which leaves no room for another formula; in float32, as on a GPU, to the tolerance
that the pure-PyTorch one is held to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from splatfix.kernels import rasterizer, rasterizer_cuda
from splatfix.kernels.nvrtc import NoKernels

from ..compare import ARGUMENTS, BOTH, Drawn, assert_agree
from ..gaussian_cases import CASES, faint, with_opacities
from ..scenes import Inputs, cloud, look_at, rand
from ..test_rasterizer import GRADIENT, VALUE
from .emulator import Emulated, needs_compiler, text_with, use_kernels

pytestmark = pytest.mark.usefixtures("emulated")


def compare(
    settings: Any, inputs: Inputs, dtype: torch.dtype = torch.float64, slack: float = 1.0, **options: Any
) -> Drawn:
    value, gradient = (1e-12, 1e-10) if dtype == torch.float64 else (VALUE, GRADIENT)
    both = (rasterizer.rasterize, rasterizer_cuda.rasterize)
    return assert_agree(*both, settings, inputs, dtype, value * slack, gradient * slack, **options)[0]


@BOTH
@pytest.mark.parametrize("name", CASES)
def test_they_follow_pytorch(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]()
    slack = case.slack
    if dtype == torch.float64:
        # atomics add up in another order each time, and what cancels loses digits even there
        slack = 1000 if case.slack is None else 1
    if slack is not None:
        compare(case.settings, case.inputs, dtype, slack, columns=case.columns)


@BOTH
@pytest.mark.parametrize("options", [{"scale_modifier": 0.7}, {"antialiasing": True}, {"kernel_size": 0.1}])
def test_upstream_gradients(options: dict[str, Any], dtype: torch.dtype) -> None:
    compare(look_at(50, 37, upstream_gradients=True, **options), cloud(40), dtype)


@BOTH
@pytest.mark.parametrize("outputs", [(0,), (2,), (3,), (4,), (0, 4)], ids=str)
def test_gradient_of_some_outputs(outputs: tuple[int, ...], dtype: torch.dtype) -> None:
    compare(look_at(40, 30), cloud(50), dtype, outputs=outputs)


@pytest.mark.parametrize(
    "channels", [1, pytest.param(8, marks=pytest.mark.slow), pytest.param(19, marks=pytest.mark.slow)]
)
def test_channels(channels: int) -> None:
    """In float64 only: every number of channels is a compilation."""
    inputs = cloud(30, precomputed=True) | {"colors_precomp": rand(30, channels)}
    compare(look_at(40, 30, bg=rand(channels)), inputs)


def test_gradients_of_harmonics_that_nobody_sees_are_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel writes all of them, so their memory may hold anything before."""
    monkeypatch.setattr(torch, "empty_like", lambda like: torch.full_like(like, 7))
    inputs = cloud(40, spread=8.0)
    result = compare(look_at(40, 30, sh_degree=1), inputs)
    assert 0 < int((result[1] == 0).sum()) < 40


@BOTH
def test_more_than_a_turn_of_gaussians_on_a_tile(dtype: torch.dtype) -> None:
    """Pixels see 700 of them: three turns of the backward pass."""
    inputs = faint(700, 0.02, spread=0.3)
    result = compare(look_at(24, 20), with_opacities(inputs, inputs["opacities"] + 0.005), dtype, slack=3)
    assert float(result[3].detach().min()) < 0.999


@needs_compiler
@pytest.mark.parametrize("listed", ["slack + 4e-3", "slack - 9e-3", "0 * slack + 20", "compact"])
def test_lists_that_are_not_as_counted(listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As two kernels may round: more tiles or fewer, none outside the list; all that are needed where rounding can differ so."""

    def module(name: str, defines: Mapping[str, object], like: torch.Tensor) -> Emulated:
        text = text_with(name, "tiles.h")
        if name == "binning.cu":
            wrong = {"compact": ("* (compact > 0 ? compact :", "* (compact > 0 ? 2 * compact :")}
            text = text_with(name, "tiles.h", *wrong.get(listed, ("number(slack)", f"number({listed})")))
        return Emulated(text, defines, like.dtype)

    use_kernels(module, monkeypatch)
    monkeypatch.setattr(torch, "empty", torch.zeros)  # a pair that nobody writes is a Gaussian's
    inputs = cloud(700, size=(0.02, 0.3))
    inputs["scales"][:4] = 1.5
    if "e-3" in listed:
        compare(look_at(140, 100), inputs, outputs=(0,))
    else:
        box = {"compact_box": 0.5} if listed == "compact" else {}
        given = (inputs.get(name) for name in ARGUMENTS)
        image, *_ = rasterizer_cuda.rasterize(look_at(140, 100, **box), *given)
        assert bool(image.isfinite().all())


@pytest.mark.parametrize(
    "size", [(1, 16 * 32767), (1, 16 * 32768), (16 * 32767, 1), (16 * 32768, 1)], ids=str
)
def test_as_many_tiles_as_a_key_counts(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 and of 32 bits: every Gaussian is in the list of the tile that it is in the middle of."""
    monkeypatch.setattr(rasterizer_cuda, "_ROOM", 5.0)  # some are counted that are not listed
    inputs = cloud(300, size=(1e-5, 1e-4))
    means = inputs["means3D"]
    if size[0] > 1:  # along a line that the image shows
        means[:, 1] = (0.28 * means[:, 2] + 0.05) / 0.96
    else:
        means[:, 0] = -0.1
    settings = look_at(*size, fov=2 * math.atan(0.25 * size[0] / max(size)), roll=0.0)
    frame = rasterizer_cuda.frame_of(settings, means)
    inputs["means2D"] = torch.zeros_like(means)
    _, pairs = rasterizer_cuda.arrange(frame, [inputs.get(name) for name in ARGUMENTS])
    along = pairs.splats[:, :2].amax(1)
    drawn = (pairs.radii > 0) & (along > 0) & (along < max(size) - 1)
    tiles = (along / 16).long()
    assert int(drawn.sum()) > 200 and int(tiles[drawn].max()) > 31000
    for number in drawn.nonzero().view(-1).tolist():
        begin, end = pairs.ranges[tiles[number]].tolist()
        assert number in pairs.gaussians[begin:end].tolist()
    listed = int((pairs.ranges[:, 1] - pairs.ranges[:, 0]).sum())
    assert listed < len(pairs.gaussians)


@pytest.mark.parametrize("size", [(1, 16 * 65536), (16 << 15, 16 << 15)], ids=str)
def test_more_tiles_than_can_be_counted(size: tuple[int, int]) -> None:
    settings, like = look_at(*size), torch.zeros(1)
    with pytest.raises(NoKernels, match=f"{size[0]} x {size[1]} pixels"):
        rasterizer_cuda.frame_of(settings, like)
    largest = settings._replace(image_height=size[1] - 16)
    assert rasterizer_cuda.frame_of(largest, like).tiles[1] == size[1] // 16 - 1


def test_more_pairs_than_can_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
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
