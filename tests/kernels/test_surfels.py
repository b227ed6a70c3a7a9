"""The surfel rasterizer against a naive float64 reference, and its gradient against finite differences."""

import math
from typing import Any

import pytest
import torch

from splatfix.kernels import surfels_cuda
from splatfix.kernels.surfels import rasterize_surfels
from tests.tables import data

from . import surfel_reference as reference
from .compare import SURFELS, Drawn, Render, assert_agree, map_by_map, refused
from .scenes import Inputs, discs, edge_on, facing, look_at, rand
from .surfel_cases import CASES, SETTINGS


def compare(
    settings: Any, inputs: Inputs, dtype: torch.dtype = torch.float64, **options: Any
) -> tuple[Drawn, Inputs]:
    """Map by map, in float32 without the median's, which jumps."""
    value, gradient = (1e-9, 1e-7) if dtype == torch.float64 else (2e-5, 1e-3)
    both = (map_by_map(one, dtype == torch.float32) for one in (reference.rasterize, rasterize_surfels))
    return assert_agree(*both, settings, inputs, dtype, value, gradient, names=SURFELS, **options)


@pytest.mark.parametrize("name", CASES)
def test_it_follows_the_reference(name: str) -> None:
    case = CASES[name]()
    drawn, _ = compare(case.settings, case.inputs)
    if "transforms" in case.inputs:  # it has no normals: those of planes that face the camera
        assert torch.allclose(drawn[6], -drawn[3]) and not drawn[4].any() and not drawn[5].any()


@pytest.mark.parametrize(
    "name", ["random", "opaque stack", "around the camera, some behind", "edge-on by 0.1"]
)
def test_float32_is_near(name: str) -> None:
    compare(SETTINGS, CASES[name]().inputs, torch.float32)


@pytest.mark.parametrize("seed", range(8))
def test_every_map_equals_finite_differences(seed: int) -> None:
    """Discs of many pixels, where the low-pass decides nowhere; upstream's differ with a `scale_modifier` (docs/trainer.md)."""
    inputs, settings = facing(6, 30 + seed, precomputed=True), look_at(13, 11, scale_modifier=0.8)
    assert not reference.render(settings, **inputs).low_pass.any()

    def draw(*leaves: torch.Tensor) -> torch.Tensor:
        result = rasterize_surfels(settings, means2D=None, **dict(zip(inputs, leaves, strict=True)))
        return torch.cat([result.color, result.allmap])

    leaves = [item.requires_grad_() for item in inputs.values()]
    assert torch.autograd.gradcheck(draw, leaves, eps=1e-7, atol=1e-5, rtol=1e-4, fast_mode=True)


def test_an_edge_on_surfel_draws_little_and_nothing_breaks() -> None:
    """Down to a plane that holds the ray exactly: finite values and gradients, as the reference has them, or nothing at all."""
    for tilt in (1e-5, 1e-9, 1e-13, 0.0):
        for dtype in (torch.float64, torch.float32):
            inputs = {name: item.to(dtype).requires_grad_() for name, item in edge_on(tilt).items()}
            result = rasterize_surfels(SETTINGS, means2D=None, **inputs)
            (result.color.sum() + result.allmap.sum()).backward()
            assert torch.isfinite(result.color).all() and torch.isfinite(result.allmap).all()
            for name, item in inputs.items():
                assert item.grad is not None and torch.isfinite(item.grad).all(), (tilt, dtype, name)


def test_the_densification_statistic() -> None:
    """It is a part of every comparison: with and without a low-pass that decides, in which it has no part."""
    for inputs, has_low_pass in ((facing(8, 41), False), (discs(8, seed=42, size=(1e-3, 2e-3)), True)):
        assert reference.render(SETTINGS, **inputs).low_pass.any() == has_low_pass
        statistic = compare(SETTINGS, inputs)[1]["means2D"]
        assert statistic[:, :2].any() != has_low_pass and not statistic[:, 2].any()


def test_many_tiles_and_any_number_of_channels() -> None:
    """More tiles than one chunk takes."""
    inputs = discs(12, seed=44, precomputed=True, size=(0.1, 0.9)) | {"colors_precomp": rand(12, 5, seed=1)}
    compare(look_at(203, 197, bg=rand(5)), inputs)


def test_without_gradients_the_same_images() -> None:
    inputs = CASES["opaque stack"]().inputs
    with torch.no_grad():
        plain = rasterize_surfels(SETTINGS, means2D=None, **inputs)
    inputs["means3D"].requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        traced = rasterize_surfels(SETTINGS, means2D=None, **inputs)
    assert torch.equal(plain.color, traced.color) and torch.equal(plain.allmap, traced.allmap)
    assert traced.color.requires_grad and not plain.color.requires_grad


def test_what_is_not_finite_is_left_out() -> None:
    inputs, settings = discs(10, seed=45), SETTINGS
    without = {name: item[2:] for name, item in inputs.items()}
    inputs["means3D"][0, 1], inputs["scales"][1, 0] = math.nan, math.inf
    leaves = {name: item.requires_grad_() for name, item in inputs.items()}
    result = rasterize_surfels(settings, means2D=None, **leaves)
    expected = rasterize_surfels(settings, means2D=None, **without)
    assert result.radii[:2].tolist() == [0, 0] and torch.equal(result.radii[2:], expected.radii)
    assert torch.allclose(result.color, expected.color) and torch.allclose(result.allmap, expected.allmap)
    result.color.sum().backward()
    for name, item in leaves.items():
        assert item.grad is not None and torch.isfinite(item.grad).all() and not item.grad[:2].any(), name
    with pytest.raises(ValueError, match="NaN or infinite"):
        rasterize_surfels(settings._replace(debug=True), means2D=None, **leaves)


@pytest.mark.parametrize("draw", [rasterize_surfels, surfels_cuda.rasterize], ids=["PyTorch", "CUDA"])
def test_the_gradient_of_an_empty_pixel_is_not_read(draw: Render, request: pytest.FixtureRequest) -> None:
    """2DGS's render() divides the depth by alpha and writes 0 over NaN: the gradient of 0 / 0 is NaN all the same."""
    if draw is surfels_cuda.rasterize:
        request.getfixturevalue("emulated")
    inputs = discs(3, seed=46, size=(0.1, 0.2)) | {"means2D": torch.zeros(3, 3, dtype=torch.float64)}
    leaves = {name: item.requires_grad_() for name, item in inputs.items()}
    _, _, maps = draw(SETTINGS, *(leaves.get(name) for name in SURFELS))
    assert (maps[1] == 0).any() and (maps[1] > 0).any()
    torch.nan_to_num(maps[0] / maps[1]).sum().backward()
    for item in (leaves[name] for name in ("means3D", "scales", "rotations", "means2D")):
        assert item.grad is not None and torch.isfinite(item.grad).all() and item.grad.abs().sum() > 0


@pytest.mark.parametrize("row", data(__file__)["refused"], ids=str)
def test_what_is_refused(row: dict[str, Any]) -> None:
    settings, inputs = refused(row, (40, 30), discs(3))
    with pytest.raises((ValueError, RuntimeError), match=row["says"]):
        rasterize_surfels(settings, **inputs)
