"""The surfel rasterizer against a naive float64 reference, and its gradient against finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.kernels.surfels import rasterize_surfels

from . import surfel_reference as reference
from .rasterizer_compare import assert_close, cloud, look_at, one_thread  # noqa: F401 - a fixture


def discs(count: int, seed: int = 0, **options: Any) -> dict[str, Tensor]:
    inputs = cloud(count, seed, **options)
    return inputs | {"scales": inputs["scales"][:, :2].contiguous()}


def facing(count: int, seed: int, **options: Any) -> dict[str, Tensor]:
    """Large discs, turned towards the camera but for a few degrees: the low-pass decides nowhere."""
    inputs = discs(count, seed, size=(0.5, 0.9), **options)
    towards = quaternion(look_at(8, 8).viewmatrix[:3, :3])
    turn = towards + 0.02 * (inputs["rotations"] - towards)
    return inputs | {"rotations": torch.nn.functional.normalize(turn)}


def edge_on(tilt: float) -> dict[str, Tensor]:
    """Discs whose plane nearly holds the ray to their center: `tilt` radians are left."""
    inputs, settings = discs(12, seed=21, size=(0.2, 0.5)), look_at(40, 30)
    rotations = []
    for i, mean in enumerate(inputs["means3D"]):
        ray = torch.nn.functional.normalize(mean - settings.campos, dim=0)
        side = torch.nn.functional.normalize(
            torch.linalg.cross(ray, torch.eye(3, dtype=torch.float64)[i % 3]), dim=0
        )
        normal = math.cos(tilt) * side + math.sin(tilt) * ray
        first = torch.nn.functional.normalize(torch.linalg.cross(normal, side + 0.3 * ray), dim=0)
        turn = torch.stack([first, torch.linalg.cross(normal, first), normal], dim=1)
        rotations.append(quaternion(turn))
    return inputs | {"rotations": torch.stack(rotations)}


def quaternion(turn: Tensor) -> Tensor:
    """(w, x, y, z) of a rotation, as the eigenvector that the rotation's 4x4 form has for its largest eigenvalue."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = turn.tolist()
    form = torch.tensor(
        [
            [xx + yy + zz, zy - yz, xz - zx, yx - xy],
            [zy - yz, xx - yy - zz, xy + yx, xz + zx],
            [xz - zx, xy + yx, yy - xx - zz, yz + zy],
            [yx - xy, xz + zx, yz + zy, zz - xx - yy],
        ],
        dtype=torch.float64,
    )
    return torch.linalg.eigh(form)[1][:, -1]


def opaque_stack() -> dict[str, Tensor]:
    """Sixty large layers, so that pixels stop, more than one block of depth."""
    inputs = discs(60, seed=5, spread=0.4, size=(0.5, 0.9))
    return inputs | {"opacities": torch.full((60, 1), 0.6, dtype=torch.float64)}


def capped() -> dict[str, Tensor]:
    inputs = discs(10, seed=6, size=(0.3, 0.5))
    return inputs | {"opacities": torch.full((10, 1), 0.999, dtype=torch.float64)}


def ties() -> dict[str, Tensor]:
    inputs = discs(8, seed=7, size=(0.3, 0.5))
    return {name: torch.cat([item, item]) for name, item in inputs.items()}


def colored() -> dict[str, Tensor]:
    return discs(15, seed=8, precomputed=True)


SCENES: dict[str, Callable[[], dict[str, Tensor]]] = {
    "random": lambda: discs(25, seed=1),
    "precomputed colors": colored,
    "opaque stack": opaque_stack,
    "capped alpha": capped,
    "ties": ties,
    "around the camera, some behind": lambda: discs(30, seed=2, spread=6.0, size=(0.1, 1.0)),
    "larger than the view, through the camera plane": lambda: discs(12, seed=3, spread=3.0, size=(2.0, 6.0)),
    "tiny": lambda: discs(30, seed=4, size=(1e-5, 2e-3)),
    "needles": lambda: (
        discs(20, seed=9) | {"scales": torch.tensor([[0.8, 1e-4]], dtype=torch.float64).expand(20, 2).clone()}
    ),
    "edge-on by 0.1": lambda: edge_on(0.1),
    "edge-on by 1e-3": lambda: edge_on(1e-3),
    "quaternions of any length": lambda: {
        k: (v * 3 if k == "rotations" else v) for k, v in discs(15, seed=10).items()
    },
    "one": lambda: discs(1, seed=11),
    "none": lambda: discs(0),
    "all behind": lambda: discs(5) | {"means3D": torch.full((5, 3), -50.0, dtype=torch.float64)},
}


def both(
    settings: Any, inputs: dict[str, Tensor], dtype: torch.dtype
) -> tuple[Any, Any, dict[str, tuple[Any, Any]]]:
    """Ours, the reference, and the gradients of each input, of a random sum of everything that is drawn."""
    inputs = {name: item.to(dtype).double() for name, item in inputs.items()}
    generator = torch.Generator().manual_seed(3)
    size = (settings.image_height, settings.image_width)
    channels = settings.bg.numel()
    upstream = torch.randn(channels + 7, *size, generator=generator, dtype=torch.float64).to(dtype).double()
    leaves = {name: item.clone().requires_grad_() for name, item in inputs.items()}
    expected = reference.render(settings, **leaves)
    loss = (torch.cat([expected.color, expected.allmap]) * upstream).sum()
    targets = [*leaves.values(), expected.planes]
    grads = (
        torch.autograd.grad(loss, targets, allow_unused=True) if loss.requires_grad else [None] * len(targets)
    )
    ours = {name: item.to(dtype).requires_grad_() for name, item in inputs.items()}
    points = torch.zeros_like(ours["means3D"], requires_grad=True)
    result = rasterize_surfels(settings, means2D=points, **ours)
    (torch.cat([result.color, result.allmap]) * upstream.to(dtype)).sum().backward()
    pairs = {name: (item.grad, grad) for (name, item), grad in zip(ours.items(), grads, strict=False)}
    if grads[-1] is not None:
        planes = expected.planes.detach()
        half = torch.tensor([0.5 * size[1], 0.5 * size[0]], dtype=torch.float64)
        pairs["planes"] = (points.grad, grads[-1][:, :2, 2] * planes[:, 2, 2:] * half)
    return result, expected, pairs


@pytest.mark.parametrize("name", SCENES)
def test_images_and_gradients_follow_the_reference(name: str) -> None:
    settings, inputs = look_at(40, 30, fov=0.8), SCENES[name]()
    result, expected, pairs = both(settings, inputs, torch.float64)
    assert torch.equal(result.radii, expected.radii)
    assert result.allmap.shape == (7, 30, 40) and result.color.shape == (3, 30, 40)
    assert torch.allclose(result.color, expected.color, atol=1e-9, rtol=0)
    for i, image in enumerate(("depth", "alpha", "x", "y", "z", "median", "distortion")):
        assert_close(image, result.allmap[i].detach(), expected.allmap[i].detach(), 1e-9)
    for key, (got, exact) in pairs.items():
        if key == "planes" or not got.numel():
            continue
        assert_close(key, got, exact, 1e-7)
    if name not in ("none", "all behind"):
        assert float(expected.allmap[1].detach().max()) > 0.01


@pytest.mark.parametrize(
    "name", ["random", "opaque stack", "around the camera, some behind", "edge-on by 0.1"]
)
def test_float32_is_near(name: str) -> None:
    result, expected, pairs = both(look_at(40, 30, fov=0.8), SCENES[name](), torch.float32)
    assert result.color.dtype == result.allmap.dtype == torch.float32
    assert torch.equal(result.radii, expected.radii)
    assert_close("color", result.color.detach(), expected.color.detach(), 1e-5)
    for i in (0, 1, 2, 3, 4, 6):
        assert_close(f"map {i}", result.allmap[i].detach(), expected.allmap[i].detach(), 2e-5)
    for key, (got, exact) in pairs.items():
        if key != "planes":
            assert_close(key, got, exact, 1e-3)


def flat(settings: Any, names: list[str], maps: slice) -> Callable[..., Tensor]:
    """Color and some of the maps as a function of the inputs, for finite differences."""

    def draw(*leaves: Tensor) -> Tensor:
        result = rasterize_surfels(settings, means2D=None, **dict(zip(names, leaves, strict=True)))
        return torch.cat([result.color, result.allmap[maps]]) if maps.stop else result.color

    return draw


@pytest.mark.parametrize("seed", range(8))
def test_every_map_against_finite_differences(seed: int) -> None:
    """Discs of many pixels, where the low-pass decides nowhere."""
    inputs, settings = facing(6, 30 + seed, precomputed=True), look_at(13, 11, scale_modifier=0.8)
    assert not reference.render(settings, **inputs).low_pass.any()
    leaves = [item.requires_grad_() for item in inputs.values()]
    assert torch.autograd.gradcheck(
        flat(settings, list(inputs), slice(0, 7)), leaves, eps=1e-7, atol=1e-5, rtol=1e-4, fast_mode=True
    )


@pytest.mark.parametrize("name", ["tiny", "needles", "edge-on by 0.1", "edge-on by 1e-3", "random"])
def test_where_the_low_pass_decides_against_finite_differences(name: str) -> None:
    """Color, alpha and normals: the depth's derivative is cut there on purpose."""
    inputs, settings = SCENES[name](), look_at(13, 11, fov=0.8)
    inputs = {key: item[:8] for key, item in inputs.items() if key != "shs"}
    inputs["colors_precomp"] = torch.rand(
        8, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    assert reference.render(settings, **inputs).low_pass.any()
    leaves = [item.requires_grad_() for item in inputs.values()]
    # far below the size of a needle
    assert torch.autograd.gradcheck(
        flat(settings, list(inputs), slice(1, 5)), leaves, eps=1e-9, atol=1e-4, rtol=1e-3, fast_mode=True
    )


def test_an_edge_on_surfel_draws_little_and_nothing_breaks() -> None:
    """Down to a plane that holds the ray exactly: finite values and gradients, as the reference has them, or nothing at all."""
    for tilt in (1e-5, 1e-9, 1e-13, 0.0):
        for dtype in (torch.float64, torch.float32):
            inputs = {name: item.to(dtype).requires_grad_() for name, item in edge_on(tilt).items()}
            result = rasterize_surfels(look_at(40, 30), means2D=None, **inputs)
            (result.color.sum() + result.allmap.sum()).backward()
            assert torch.isfinite(result.color).all() and torch.isfinite(result.allmap).all()
            for name, item in inputs.items():
                assert item.grad is not None and torch.isfinite(item.grad).all(), (tilt, dtype, name)


def test_the_densification_statistic() -> None:
    """dL/dTu.z and dL/dTv.z, times depth and half the image: through the ray's intersection, not through the low-pass."""
    inputs, settings = facing(8, 41), look_at(40, 30)
    _, expected, pairs = both(settings, inputs, torch.float64)
    assert not expected.low_pass.any()
    got, exact = pairs["planes"]
    assert_close("means2D", got[:, :2], exact, 1e-8)
    assert got[:, 2].abs().sum() == 0 and got.abs().sum() > 0
    _, expected, pairs = both(settings, discs(8, seed=42, size=(1e-3, 2e-3)), torch.float64)
    assert expected.low_pass.any()
    got, exact = pairs["planes"]
    assert float((got[:, :2] - exact).abs().max()) > 0.1 * float(exact.abs().max())


@pytest.mark.parametrize("size", [(0.2, 0.5), (1e-3, 2e-3)])
def test_transforms_in_place_of_scales_and_rotations(size: tuple[float, float]) -> None:
    """The original's cov3D_precomp. Normals are (0, 0, -1), and the statistic has the low-pass's part too."""
    settings, inputs = look_at(40, 30), discs(12, seed=43, size=size)
    planes = reference.render(settings, **inputs).planes.detach()
    inputs = {k: v for k, v in inputs.items() if k not in ("scales", "rotations")}
    result, expected, pairs = both(settings, inputs | {"transforms": planes.reshape(-1, 9)}, torch.float64)
    assert torch.equal(result.radii, expected.radii)
    assert torch.allclose(result.color, expected.color, atol=1e-9)
    assert torch.allclose(result.allmap, expected.allmap, atol=1e-9)
    assert torch.allclose(result.allmap[4], -result.allmap[1]) and result.allmap[2:4].abs().sum() == 0
    got, exact = pairs.pop("planes")
    assert_close("means2D", got[:, :2], exact, 1e-7)
    for name, (ours, theirs) in pairs.items():
        assert_close(name, ours, theirs, 1e-7)


def test_many_tiles_and_any_number_of_channels() -> None:
    """More tiles than one chunk takes."""
    settings = look_at(203, 197, bg=torch.tensor([0.3, 0.1, 0.2, 0.9, 0.4], dtype=torch.float64))
    inputs = discs(12, seed=44, precomputed=True, size=(0.1, 0.9))
    inputs["colors_precomp"] = torch.rand(
        12, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    result, expected, pairs = both(settings, inputs, torch.float64)
    assert torch.allclose(result.color, expected.color, atol=1e-9)
    assert torch.allclose(result.allmap, expected.allmap, atol=1e-9)
    for name, (ours, theirs) in pairs.items():
        if name != "planes":
            assert_close(name, ours, theirs, 1e-7)


def test_without_gradients_the_same_images() -> None:
    inputs, settings = opaque_stack(), look_at(40, 30)
    with torch.no_grad():
        plain = rasterize_surfels(settings, means2D=None, **inputs)
    inputs["means3D"].requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        traced = rasterize_surfels(settings, means2D=None, **inputs)
    assert torch.equal(plain.color, traced.color) and torch.equal(plain.allmap, traced.allmap)
    assert traced.color.requires_grad and not plain.color.requires_grad


def test_what_is_not_finite_is_left_out() -> None:
    inputs, settings = discs(10, seed=45), look_at(40, 30)
    without = {name: item[2:] for name, item in inputs.items()}
    inputs["means3D"][0, 1], inputs["scales"][1, 0] = math.nan, math.inf
    leaves = {name: item.requires_grad_() for name, item in inputs.items()}
    result = rasterize_surfels(settings, means2D=None, **leaves)
    expected = rasterize_surfels(settings, means2D=None, **without)
    assert result.radii[:2].tolist() == [0, 0] and torch.equal(result.radii[2:], expected.radii)
    assert torch.allclose(result.color, expected.color) and torch.allclose(result.allmap, expected.allmap)
    result.color.sum().backward()
    for name, item in leaves.items():
        assert item.grad is not None and item.grad[:2].abs().sum() == 0 and torch.isfinite(item.grad).all(), (
            name
        )
    with pytest.raises(ValueError, match="NaN or infinite"):
        rasterize_surfels(settings._replace(debug=True), means2D=None, **leaves)


def test_the_gradient_of_an_empty_pixel_is_not_read() -> None:
    """2DGS's render() divides the depth by alpha and writes 0 over NaN: the gradient of 0 / 0 is NaN all the same."""
    inputs, settings = discs(3, seed=46, size=(0.1, 0.2)), look_at(40, 30)
    leaves = {name: item.requires_grad_() for name, item in inputs.items()}
    points = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    result = rasterize_surfels(settings, means2D=points, **leaves)
    assert (result.allmap[1] == 0).any() and (result.allmap[1] > 0).any()
    torch.nan_to_num(result.allmap[0] / result.allmap[1]).sum().backward()
    for item in (leaves["means3D"], leaves["scales"], leaves["rotations"], points):
        assert item.grad is not None and torch.isfinite(item.grad).all() and item.grad.abs().sum() > 0


def test_what_is_refused() -> None:
    inputs, settings = discs(3), look_at(20, 20)
    for options in ({"kernel_size": 0.1}, {"antialiasing": True}, {"compact_box": 0.5}):
        with pytest.raises(ValueError, match="Surfels know no"):
            rasterize_surfels(settings._replace(**options), means2D=None, **inputs)
    with pytest.raises(ValueError, match=r"`scales` must have the shape \(3, 2\), not \(3, 3\)"):
        rasterize_surfels(
            settings, means2D=None, **(inputs | {"scales": torch.ones(3, 3, dtype=torch.float64)})
        )
    with pytest.raises(RuntimeError, match="behind the near plane"):
        rasterize_surfels(
            settings._replace(prefiltered=True),
            means2D=None,
            **(inputs | {"means3D": inputs["means3D"] - 50}),
        )
