"""Degenerate, extreme and forbidden inputs of the rasterizer, and the promises its docstring makes about them."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.kernels import blending, projection
from splatfix.kernels.rasterizer import GaussianRasterizer, rasterize

from . import rasterizer_reference as reference
from .rasterizer_compare import cloud, compare, look_at, one_thread, run, weights_for  # noqa: F401

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def background(settings: Any) -> Tensor:
    return settings.bg[:, None, None].expand(3, settings.image_height, settings.image_width)


def one(
    position: Sequence[float],
    scale: Sequence[float] = (0.2, 0.2, 0.2),
    rotation: Sequence[float] = (1.0, 0.0, 0.0, 0.0),
    opacity: float = 0.8,
) -> dict[str, Tensor]:
    """A single red Gaussian, float64."""
    return {
        "means3D": torch.tensor([position], dtype=torch.float64),
        "opacities": torch.tensor([[opacity]], dtype=torch.float64),
        "colors_precomp": torch.tensor([[0.9, 0.1, 0.05]], dtype=torch.float64),
        "scales": torch.tensor([scale], dtype=torch.float64),
        "rotations": torch.tensor([rotation], dtype=torch.float64),
    }


def joined(*scenes: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.cat([scene[name] for scene in scenes]) for name in scenes[0]}


def test_no_gaussians_show_the_background():
    settings = look_at(21, 13)
    empty = {name: tensor[:0].clone().requires_grad_() for name, tensor in cloud(3).items()}
    got = rasterize(settings, means2D=None, **empty)
    assert torch.equal(got.color, background(settings)) and not got.alpha.any() and got.radii.shape == (0,)
    got.color.sum().backward()
    assert empty["means3D"].grad is not None and empty["means3D"].grad.shape == (0, 3)


def test_all_behind_the_camera():
    settings, inputs = look_at(21, 13), cloud(9)
    inputs["means3D"] = inputs["means3D"] - torch.tensor([0.0, 0.0, 20.0])
    leaves = {name: tensor.requires_grad_() for name, tensor in inputs.items()}
    got = rasterize(settings, means2D=None, **leaves)
    assert torch.equal(got.color, background(settings)) and not got.radii.any()
    got.color.sum().backward()
    assert all(not leaf.grad.any() for leaf in leaves.values())


@BOTH
def test_some_behind_some_on_the_near_plane_some_in_front(dtype):
    settings = look_at(30, 22, distance=1.0)
    compare(settings, cloud(40, spread=1.4, size=(0.02, 0.2)), dtype)


def test_near_plane_is_open_at_two_tenths():
    straight = look_at(16, 16)._replace(viewmatrix=torch.eye(4, dtype=torch.float64))
    points = torch.tensor([[0, 0, 0.2], [0, 0, 0.2000001], [0, 0, -1.0], [50, 0, 3.0]], dtype=torch.float64)
    assert GaussianRasterizer(straight).markVisible(points).tolist() == [False, True, False, True]


@BOTH
def test_near_plane_is_compared_in_float32(dtype):
    straight = look_at(16, 16)._replace(viewmatrix=torch.eye(4, dtype=torch.float64))
    depth = torch.tensor([0.2], dtype=torch.float32)
    step = torch.nextafter(depth, torch.ones(1))
    points = torch.zeros(2, 3, dtype=dtype)
    points[:, 2] = torch.cat([depth, step]).to(dtype)
    assert GaussianRasterizer(straight).markVisible(points).tolist() == [False, True]
    given = one((0.0, 0.0, 0.0))
    given = {name: tensor.to(dtype).repeat(2, 1) for name, tensor in given.items() if name != "means3D"}
    radii = rasterize(straight, points, None, **given).radii
    assert (radii > 0).tolist() == [False, True]


def upstream_pieces(**options):
    """Compensated opacity, (a, b, c) of the blurred covariance and each one's gradient by the 3D covariance."""
    settings = look_at(40, 30)._replace(upstream_gradients=True, **options)
    covariance = torch.tensor([[0.05, 0.01, 0.0, 0.03, 0.005, 0.04]], dtype=torch.float64, requires_grad=True)
    means = torch.tensor([[0.1, -0.05, 0.2]], dtype=torch.float64)
    camera = projection.camera_of(settings, means)
    opacity = torch.tensor([0.7], dtype=torch.float64)
    splats = projection.project(camera, settings, means, opacity, None, None, covariance)
    slopes = [
        torch.autograd.grad(value.sum(), covariance, retain_graph=True)[0]
        for value in (splats.opacity, splats.a, splats.b, splats.c)
    ]
    entries = [float(value.detach()) for value in (splats.opacity, splats.a, splats.b, splats.c)]
    return entries, slopes, 0.7, camera.blur


def test_upstream_gradient_of_antialiasing_takes_blurred_variances():
    """d/dx of (xy - zz) / ((x + w)(y + w) - zz), at x = a and y = c, over twice the square root."""
    (got, x, z, y), (slope, *parts), opacity, w = upstream_pieces(antialiasing=True)
    below = (w * w + w * (x + y) + x * y - z * z) ** 2
    chain = opacity * opacity / (2 * got) * w / below
    expected = chain * (
        (w * y + y * y + z * z) * parts[0]
        - 2 * z * (w + x + y) * parts[1]
        + (w * x + x * x + z * z) * parts[2]
    )
    assert torch.allclose(slope, expected, rtol=1e-9)


@pytest.mark.parametrize("size", [0.0, 0.1, 0.3])
def test_upstream_gradient_of_kernel_size_has_its_epsilons(size):
    (got, a, b, c), (slope, *parts), opacity, w = upstream_pieces(kernel_size=size)
    x, y = a - w, c - w
    sharp, blurred, share = x * y - b * b, a * c - b * b, got / opacity
    by_share = 0.5 * got / (share + 1e-6) ** 2
    by_sharp, by_blurred = by_share / (blurred + 1e-6), -by_share * sharp / (blurred**2 + 1e-6)
    expected = (
        (by_sharp * y + by_blurred * c) * parts[0]
        - 2 * b * (by_sharp + by_blurred) * parts[1]
        + (by_sharp * x + by_blurred * a) * parts[2]
    )
    assert torch.allclose(slope, expected, rtol=1e-9)


@pytest.mark.parametrize("options", [{}, {"antialiasing": True}, {"kernel_size": 0.1}])
def test_upstream_gradients_change_no_image(options):
    settings, small = (
        look_at(40, 30)._replace(scale_modifier=0.5, **options),
        one((0.1, 0.0, 0.0), (0.1, 0.05, 0.1)),
    )
    result = []
    for upstream in (False, True):
        given = {name: tensor.clone().requires_grad_(True) for name, tensor in small.items()}
        drawn = rasterize(settings._replace(upstream_gradients=upstream), means2D=None, **given)
        drawn.color.square().sum().backward()
        result.append((drawn.color.detach(), given["scales"].grad, given["opacities"].grad))
    (image, scales, opacities), (theirs, their_scales, their_opacities) = result
    assert torch.equal(image, theirs) and torch.equal(opacities, their_opacities)
    if not options:
        assert torch.allclose(their_scales * 0.5, scales, rtol=1e-9)  # they omit scale_modifier
    else:
        assert not torch.allclose(their_scales * 0.5, scales, rtol=1e-6)


@BOTH
def test_at_the_frustum_edge_z_follows_v1_and_not_autograd(dtype):
    settings = look_at(24, 24, fov=0.7, roll=0.0)
    # wide Gaussians whose centres lie outside 1.3 tan(fov / 2), on all four sides, and reach into the image
    outside = [one((s * 2.6, 0.2, 0.1), (0.8, 0.5, 0.6), opacity=0.7) for s in (-1, 1)]
    outside += [one((0.3, s * 2.7, -0.2), (0.5, 0.9, 0.7), opacity=0.7) for s in (-1, 1)]
    inputs = joined(*outside, one((0.1, 0.1, 0.0)))
    view = torch.cat([inputs["means3D"], torch.ones(5, 1)], 1).double() @ settings.viewmatrix
    clamped = (view[:, :2] / view[:, 2:3]).abs() > 1.3 * settings.tanfovx
    assert clamped.any(1).tolist() == [True] * 4 + [False]
    compare(settings, inputs, dtype)

    # ... and the choice shows: true autograd through the clamp gives another z gradient, and the same x and y
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in inputs.items()}
    loss = (
        reference.render(settings, clamp_is_constant=False, **leaves).color * weights_for(settings)[0]
    ).sum()
    true = torch.autograd.grad(loss, leaves["means3D"])[0]
    means2D = torch.zeros_like(inputs["means3D"]).requires_grad_()
    _, ours = run(rasterize, settings, inputs, weights_for(settings), outputs=("color",), means2D=means2D)
    difference = (ours["means3D"] - true) @ settings.viewmatrix[:3, :3]  # in view space
    assert (difference[:4, 2].abs() > 1e-3 * true[:4].abs().amax(1)).all()
    assert difference[:, :2].abs().max() < 1e-9 and difference[4].abs().max() < 1e-9


@BOTH
@pytest.mark.parametrize(
    "scale", [(30.0, 30.0, 30.0), (5.0, 0.001, 0.001), (1e-7, 1e-7, 1e-7), (0.0, 0.0, 0.0), (3.0, 3.0, 0.0)]
)
def test_huge_thin_and_vanishing_covariances(scale, dtype):
    rotation = torch.nn.functional.normalize(torch.tensor([0.3, 0.5, -0.2, 0.7], dtype=torch.float64), dim=0)
    inputs = joined(one((0.05, 0.1, 0.3), scale, rotation.tolist(), 0.6), one((-0.3, 0.2, 0.9), opacity=0.5))
    compare(look_at(40, 31), inputs, dtype)


@BOTH
def test_needles_far_longer_than_the_image(dtype):
    """cov2D's determinant loses six digits here; float32 holds because coefficients are made in float64 per tile."""
    needles = []
    for k in range(6):
        angle = 0.4 * k
        needles.append(
            one(
                (0.1 * k - 0.2, 0.05, 0.2 * k),
                (40.0, 0.004, 0.004),
                (math.cos(angle), 0.1, 0.2, math.sin(angle)),
                0.7,
            )
        )
    compare(look_at(60, 44), joined(*needles), dtype)


def test_needle_survives_the_kernel_size_rule():
    inputs = one((0.05, 0.1, 0.3), (2.0, 1e-6, 1e-6))
    for size in (0.01, 0.05):
        compare(look_at(24, 20, kernel_size=size), inputs)


def test_indefinite_covariance_skips_positive_power():
    settings, inputs = look_at(33, 33, roll=0.0), one((0.0, 0.0, 0.0), opacity=0.5)
    del inputs["scales"], inputs["rotations"]
    # xx > 0, yy < 0 after projection and low-pass: a saddle, det < 0
    inputs["cov3D_precomp"] = torch.tensor([[0.05, 0.0, 0.0, -0.05, 0.0, 0.01]], dtype=torch.float64)
    got, _ = compare(settings, inputs)
    assert got.radii[0] > 0 and 0 < float((got.alpha > 0).double().mean()) < 1


@BOTH
def test_opacity_zero_tiny_one_and_more(dtype):
    levels = (0.0, 0.5 / 255, 1.0 / 255 + 1e-4, 0.99, 1.0, 3.0, -0.5)
    parts = [one((0.25 * k - 0.8, 0.1 * k - 0.3, 0.1 * k), opacity=level) for k, level in enumerate(levels)]
    got, result = compare(look_at(48, 40), joined(*parts), dtype)
    assert (got.radii > 0).all()  # the radius does not ask for the opacity
    assert not result["opacities"][0].any() and not result["means3D"][1].any()


def test_the_cap_passes_the_gradient_straight_through():
    settings, inputs = look_at(16, 16, roll=0.0), one((-0.1, 0.05, 0.0), (2.0, 2.0, 2.0), opacity=1.0)
    leaf = inputs["opacities"].requires_grad_()
    got = rasterize(settings, means2D=None, **inputs)
    assert float(got.alpha.detach().max()) == pytest.approx(0.99)
    got.alpha.amax().backward()
    assert float(leaf.grad) > 0.5


@BOTH
def test_a_wall_of_opaque_gaussians_stops_every_pixel(dtype):
    layers = [
        one((0.02 * k, 0.01 * k, 0.05 * k), (3.0, 3.0, 0.05), opacity=0.7 + 0.02 * (k % 10))
        for k in range(40)
    ]
    got, result = compare(look_at(20, 20), joined(*layers), dtype)
    assert float((1 - got.alpha.detach()).min()) >= 0.99e-4
    assert not result["opacities"][30:].any()


def test_pixels_stop_in_different_blocks_of_depth():
    """The transmittance stop falls before, inside and behind the 32-deep blocks of one tile."""
    inputs = cloud(150, spread=0.3, size=(0.05, 0.6), precomputed=True)
    inputs["opacities"] = inputs["opacities"] * 0.25
    got, _ = compare(look_at(12, 12), inputs)
    alpha = got.alpha.detach()
    assert float(alpha.min()) < 0.999 < float(alpha.max())


@pytest.mark.slow
def test_thousands_on_one_tile():
    inputs = cloud(1500, spread=0.02, size=(0.02, 0.08), precomputed=True)
    inputs["opacities"] = inputs["opacities"] * 0.01 + 0.004
    compare(look_at(8, 8), inputs)


def test_thousands_on_one_tile_agree_with_any_budget():
    inputs = cloud(2500, spread=0.02, size=(0.02, 0.08), precomputed=True)
    inputs["opacities"] = inputs["opacities"] * 0.01 + 0.004
    results = []
    for budget in (1, 1 << 16, 256 << 20):
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in inputs.items()}
        got = rasterize(look_at(40, 24), means2D=None, budget_bytes=budget, **leaves)
        gradients = torch.autograd.grad((got.color * got.depth).sum(), list(leaves.values()))
        results.append((got.color, *gradients))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def test_an_opaque_gaussian_is_cut_at_the_tiles_of_its_radius():
    """alpha = 1/255 lies at 3.33 sigma for opacity 1, the radius at 3: v1 cuts there at 16-pixel tiles, and so do we."""
    settings = look_at(64, 64, roll=0.0)
    inputs = one((0.0, 0.0, 0.0), (0.375, 0.375, 0.375), opacity=1.0)
    shifted, cut = 0, 0
    for step in range(12):
        inputs["means3D"] = torch.tensor([[0.06 * step - 0.3, 0.04 * step, 0.0]], dtype=torch.float64)
        got, _ = compare(settings, inputs)
        alpha = got.alpha[0]
        for edge in (16, 32, 48):
            shifted += 1
            inside, outside = alpha[:, edge - 1].amax(), alpha[:, edge].amax()
            cut += bool((inside == 0) != (outside == 0) and max(inside, outside) > 1.5 / 255)
    assert cut > 0, "no step exercised the cut"


def test_equal_depths_keep_the_order_of_the_input():
    red, blue = one((0, 0, 0), opacity=0.9), one((0, 0, 0), opacity=0.9)
    blue["colors_precomp"] = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    settings = look_at(17, 17)
    first, _ = compare(settings, joined(red, blue))
    second, _ = compare(settings, joined(blue, red))
    centre = (slice(None), 8, 8)
    assert (
        first.color[centre][0] > first.color[centre][2] and second.color[centre][2] > second.color[centre][0]
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["means3D", "opacities", "shs", "scales", "rotations"])
def test_non_finite_gaussians_are_left_out_alone(field, bad):
    settings, inputs = look_at(25, 25), cloud(10)
    inputs[field].view(10, -1)[4, -1] = bad
    without = {name: torch.cat([tensor[:4], tensor[5:]]) for name, tensor in inputs.items()}
    leaves = {name: tensor.requires_grad_() for name, tensor in inputs.items()}
    got, expected = rasterize(settings, means2D=None, **leaves), rasterize(settings, means2D=None, **without)
    assert torch.equal(got.color, expected.color) and got.radii[4] == 0
    got.color.square().sum().backward()
    for name, leaf in leaves.items():
        assert torch.isfinite(leaf.grad).all() and not leaf.grad[4].any(), name
    with pytest.raises(ValueError, match=f"`{field}` holds NaN or infinite"):
        rasterize(settings._replace(debug=True), means2D=None, **leaves)


def test_finite_numbers_whose_sum_overflows_are_no_error():
    settings, inputs = look_at(25, 25), {k: v.float() for k, v in cloud(4).items()}
    inputs["means3D"][:2] = torch.tensor([3e38, 0.0, 0.0])
    without = {name: tensor[2:] for name, tensor in inputs.items()}
    got = rasterize(settings._replace(debug=True), means2D=None, **inputs)
    assert torch.equal(got.color, rasterize(settings, means2D=None, **without).color)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("field", ["colors_precomp", "cov3D_precomp"])
def test_non_finite_precomputed_values_are_left_out_alone(field, bad):
    settings, inputs = look_at(25, 25), cloud(10, precomputed=True, covariance=True)
    inputs[field][4, 1] = bad
    without = {name: torch.cat([tensor[:4], tensor[5:]]) for name, tensor in inputs.items()}
    leaves = {name: tensor.requires_grad_() for name, tensor in inputs.items()}
    got, expected = rasterize(settings, means2D=None, **leaves), rasterize(settings, means2D=None, **without)
    assert torch.equal(got.color, expected.color) and got.radii[4] == 0
    got.color.square().sum().backward()
    for name, leaf in leaves.items():
        assert torch.isfinite(leaf.grad).all() and not leaf.grad[4].any(), name


def test_what_is_fainter_than_one_part_in_255_is_not_drawn():
    settings = look_at(21, 21)
    for opacity, drawn in ((0.999 / 255, False), (1.05 / 255, True)):
        inputs = one((-0.1, 0.05, 0.0), (2.0, 2.0, 2.0), opacity=opacity)  # its peak lies inside the image
        leaf = inputs["opacities"].requires_grad_()
        got = rasterize(settings, means2D=None, **inputs)
        assert got.radii[0] > 0 and bool(got.alpha.any()) is drawn
        got.color.sum().backward()
        assert bool(leaf.grad.any()) is drawn
        shown = got.alpha[got.alpha > 0]
        assert not drawn or float(shown.detach().min()) >= 1 / 255


def test_two_runs_give_the_same_bits():
    settings, inputs = look_at(70, 50), cloud(400, size=(0.02, 0.2))
    runs = []
    for _ in range(2):
        leaves = [tensor.float().requires_grad_() for tensor in inputs.values()]
        got = rasterize(settings, means2D=None, **dict(zip(inputs, leaves, strict=True)))
        runs.append([*got, *torch.autograd.grad(got.color.square().sum(), leaves)])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_backward_twice_and_without_graph():
    settings, inputs = look_at(20, 20), cloud(6)
    leaves = {name: tensor.requires_grad_() for name, tensor in inputs.items()}
    got = rasterize(settings, means2D=None, **leaves)
    first = torch.autograd.grad(got.color.sum(), leaves["means3D"], retain_graph=True)[0]
    second = torch.autograd.grad(got.color.sum(), leaves["means3D"])[0]
    assert torch.equal(first, second)
    with torch.no_grad():
        assert not rasterize(settings, means2D=None, **leaves).color.requires_grad


def test_v1_call_and_its_statistic():
    settings, inputs = look_at(20, 16), {k: v.float().requires_grad_() for k, v in cloud(6).items()}
    means2D = torch.zeros(6, 3, requires_grad=True)
    color, radii = GaussianRasterizer(raster_settings=settings)(means2D=means2D, **inputs)
    assert color.shape == (3, 16, 20) and radii.dtype == torch.int32 and not radii.requires_grad
    color.sum().backward()
    assert means2D.grad[:, :2].abs().sum() > 0 and not means2D.grad[:, 2].any()


def test_garbage_in_means2D_does_not_matter():
    settings, inputs = look_at(20, 16), cloud(6)
    expected = rasterize(settings, means2D=None, **inputs)
    got = rasterize(settings, means2D=torch.full((6, 3), math.nan, dtype=torch.float64), **inputs)
    assert torch.equal(got.color, expected.color)


def test_what_v1_refuses_is_refused():
    settings, inputs = look_at(20, 16), cloud(6)
    module = GaussianRasterizer(settings)
    means2D = torch.zeros(6, 3, dtype=torch.float64)
    with pytest.raises(Exception, match="exactly one of either SHs or precomputed colors"):
        module(means2D=means2D, **{k: v for k, v in inputs.items() if k != "shs"})
    with pytest.raises(Exception, match="exactly one of either SHs or precomputed colors"):
        module(means2D=means2D, colors_precomp=torch.rand(6, 3).double(), **inputs)
    for missing in ("scales", "rotations"):
        with pytest.raises(Exception, match="exactly one of either scale/rotation pair"):
            module(means2D=means2D, **{k: v for k, v in inputs.items() if k != missing})
    with pytest.raises(Exception, match="exactly one of either scale/rotation pair"):
        module(means2D=means2D, cov3D_precomp=torch.rand(6, 6).double(), **inputs)
    inputs["means3D"][0, 2] = -30.0
    with pytest.raises(RuntimeError, match="prefiltered"):
        rasterize(settings._replace(prefiltered=True), means2D=None, **inputs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"means3D": torch.zeros(6, 2).double()}, r"`means3D` must have dimensions \(num_points, 3\)"),
        ({"scales": torch.zeros(5, 3).double()}, r"`scales` must have the shape \(6, 3\), not \(5, 3\)"),
        ({"opacities": torch.zeros(6, 2).double()}, r"`opacities` must have the shape \(6, 1\)"),
        ({"shs": torch.zeros(6, 4, 3).double()}, "SH degree 3 needs 16 coefficients"),
        ({"rotations": torch.zeros(6, 4)}, "all inputs need one dtype and one device"),
        ({"means3D": torch.zeros(6, 3).half()}, "float32 or float64"),
    ],
)
def test_wrong_shapes_and_types_are_told_apart(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        rasterize(look_at(20, 16), means2D=None, **dict(cloud(6), **change))


def test_options_that_contradict_each_other():
    with pytest.raises(ValueError, match="choose one"):
        rasterize(look_at(20, 16, antialiasing=True, kernel_size=0.1), means2D=None, **cloud(2))
    with pytest.raises(ValueError, match="subpixel_offset"):
        rasterize(look_at(20, 16, subpixel_offset=torch.zeros(20, 16, 2)), means2D=None, **cloud(2))


def test_opacities_of_shape_p_alone():
    settings, inputs = look_at(20, 16), cloud(6)
    flat = dict(inputs, opacities=inputs["opacities"].view(-1))
    assert torch.equal(
        rasterize(settings, means2D=None, **inputs).color, rasterize(settings, means2D=None, **flat).color
    )


def test_inference_mode_does_not_spoil_the_next_training_step():
    settings, inputs = look_at(20, 16), {k: v.float() for k, v in cloud(6).items()}
    with torch.inference_mode():
        rasterize(settings, means2D=None, **inputs)
    leaves = {name: tensor.requires_grad_() for name, tensor in inputs.items()}
    rasterize(settings, means2D=None, **leaves).color.sum().backward()
    assert leaves["means3D"].grad.abs().sum() > 0


def test_autocast_does_not_reach_inside():
    settings, inputs = look_at(20, 16), {k: v.float() for k, v in cloud(6).items()}
    leaves = [tensor.requires_grad_() for tensor in inputs.values()]

    def images_and_gradients():
        got = rasterize(settings, means2D=None, **dict(zip(inputs, leaves, strict=True)))
        return [got.color, *torch.autograd.grad(got.color.square().sum(), leaves)]

    expected = images_and_gradients()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = images_and_gradients()
    assert all(torch.equal(a, b) for a, b in zip(expected, result, strict=True))


@pytest.mark.parametrize("alone", ["means3D", "opacities", "shs", "scales", "rotations", "means2D"])
def test_one_input_alone_may_need_a_gradient(alone):
    settings, inputs = look_at(20, 16), cloud(6)
    inputs["means2D"] = torch.zeros(6, 3, dtype=torch.float64)
    everything = {name: tensor.clone().requires_grad_() for name, tensor in inputs.items()}
    single = dict(inputs, **{alone: inputs[alone].clone().requires_grad_()})
    rasterize(settings, **everything).color.square().sum().backward()
    rasterize(settings, **single).color.square().sum().backward()
    assert torch.equal(everything[alone].grad, single[alone].grad)
    assert all(tensor.grad is None for name, tensor in single.items() if name != alone)


def test_buffers_stay_within_the_budget():
    budget, sizes = 2 << 20, []

    def work():  # a fresh thread has no buffers yet
        inputs = cloud(300, size=(0.1, 0.5))
        inputs["opacities"][:] = 0.995  # so that the buffer of the cap is needed, too
        leaves = {name: tensor.float().requires_grad_() for name, tensor in inputs.items()}
        got = rasterize(look_at(150, 110), means2D=None, budget_bytes=budget, **leaves)
        got.color.sum().backward()
        kept = blending._workspace(leaves["means3D"])
        sizes.extend(buffer.numel() * buffer.element_size() for buffer in kept._flat.values())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(sizes) == 6 and 0.5 * budget < sum(sizes) <= budget


@pytest.mark.slow
def test_a_compiled_caller_gets_the_same():
    settings, inputs = look_at(20, 16), cloud(6)
    leaves = {name: tensor.requires_grad_() for name, tensor in inputs.items()}

    def doubled(**leaves):
        return rasterize(settings, means2D=None, **leaves).color * 2.0

    expected = doubled(**leaves)
    result = torch.compile(doubled, backend="aot_eager")(**leaves)
    assert torch.equal(result, expected)
    target = torch.autograd.grad(expected.square().sum(), list(leaves.values()))
    got = torch.autograd.grad(result.square().sum(), list(leaves.values()))
    assert all(torch.equal(a, b) for a, b in zip(got, target, strict=True))
