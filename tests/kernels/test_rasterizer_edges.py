"""Extreme and forbidden inputs of the rasterizer, and its promises, beyond what `gaussian_cases.py` compares."""

import math
import threading
from typing import Any

import pytest
import torch

from splatfix.kernels import blending, projection
from splatfix.kernels.rasterizer import GaussianRasterizer, rasterize
from tests.tables import data

from .compare import leaves_of, refused
from .gaussian_cases import faint, one
from .scenes import Inputs, cloud, look_at

SETTINGS = look_at(20, 16)


def single(inputs: Inputs) -> Inputs:
    return {name: tensor.float() for name, tensor in inputs.items()}


def drawn(settings: Any, inputs: Inputs, **options: Any) -> Any:
    return rasterize(settings, means2D=None, **inputs, **options)


def draw_and_pull(settings: Any, inputs: Inputs, **options: Any) -> list[torch.Tensor]:
    """Everything that is drawn, and the gradients."""
    leaves = leaves_of(inputs)
    result = drawn(settings, leaves, **options)
    loss = (result.color * result.depth).sum() + result.color.square().sum()
    return [*result, *torch.autograd.grad(loss, list(leaves.values()))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_near_plane_is_open_at_two_tenths_of_float32(dtype):
    straight = look_at(16, 16)._replace(viewmatrix=torch.eye(4, dtype=torch.float64))
    depth = torch.tensor([0.2], dtype=torch.float32)
    points = torch.zeros(4, 3, dtype=dtype)
    points[:, 2] = torch.cat(
        [depth, torch.nextafter(depth, torch.ones(1)), -torch.ones(1), 3 * torch.ones(1)]
    )
    points[3, 0] = 50.0
    assert GaussianRasterizer(straight).markVisible(points).tolist() == [False, True, False, True]
    alike = {name: tensor.to(dtype).repeat(2, 1) for name, tensor in one((0.0, 0.0, 0.0)).items()}
    radii = drawn(straight, alike | {"means3D": points[:2]}).radii
    assert (radii > 0).tolist() == [False, True]


def upstream_pieces(**options):
    """Compensated opacity, (a, b, c) of the blurred covariance and each one's gradient by the 3D covariance."""
    settings = look_at(40, 30, upstream_gradients=True, **options)
    covariance = torch.tensor([[0.05, 0.01, 0.0, 0.03, 0.005, 0.04]], dtype=torch.float64, requires_grad=True)
    means = torch.tensor([[0.1, -0.05, 0.2]], dtype=torch.float64)
    camera = projection.camera_of(settings, means)
    opacity = torch.tensor([0.7], dtype=torch.float64)
    given = projection.Gaussians(means, None, opacity, None, None, None, None, covariance)
    splats = projection.project(camera, settings, given)
    values = (splats.opacity, splats.a, splats.b, splats.c)
    slopes = [torch.autograd.grad(value.sum(), covariance, retain_graph=True)[0] for value in values]
    return [float(value.detach()) for value in values], slopes, 0.7, camera.blur


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
    result = []
    for upstream in (False, True):
        given = leaves_of(one((0.1, 0.0, 0.0), (0.1, 0.05, 0.1)))
        image = drawn(
            look_at(40, 30, scale_modifier=0.5, upstream_gradients=upstream, **options), given
        ).color
        image.square().sum().backward()
        result.append((image, given["scales"].grad, given["opacities"].grad))
    (image, scales, opacities), (theirs, their_scales, their_opacities) = result
    assert torch.equal(image, theirs) and torch.equal(opacities, their_opacities)
    # they omit scale_modifier, and where opacities are compensated they differ more
    assert torch.allclose(their_scales * 0.5, scales, rtol=1e-6) == (not options)


def test_thousands_on_one_tile_agree_with_any_budget():
    inputs = faint(2500, 0.01, spread=0.02, size=(0.02, 0.08), precomputed=True)
    first, *others = (draw_and_pull(look_at(40, 24), inputs, budget_bytes=b) for b in (1, 1 << 16, 256 << 20))
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "field", ["means3D", "opacities", "shs", "scales", "rotations", "colors_precomp", "cov3D_precomp"]
)
def test_non_finite_gaussians_are_left_out_alone(field, bad):
    settings, inputs = look_at(25, 25), cloud(10)
    if field not in inputs:
        inputs = cloud(10, precomputed=True, covariance=True)
    inputs[field].view(10, -1)[4, -1] = bad
    without = {name: torch.cat([tensor[:4], tensor[5:]]) for name, tensor in inputs.items()}
    leaves = leaves_of(inputs)
    result = drawn(settings, leaves)
    assert torch.equal(result.color, drawn(settings, without).color) and result.radii[4] == 0
    result.color.square().sum().backward()
    for name, leaf in leaves.items():
        assert torch.isfinite(leaf.grad).all() and not leaf.grad[4].any(), name
    with pytest.raises(ValueError, match=f"`{field}` holds NaN or infinite"):
        drawn(settings._replace(debug=True), leaves)


def test_finite_numbers_whose_sum_overflows_are_no_error():
    inputs = single(cloud(4))
    inputs["means3D"][:2] = torch.tensor([3e38, 0.0, 0.0])
    without = {name: tensor[2:] for name, tensor in inputs.items()}
    result = drawn(SETTINGS._replace(debug=True), inputs)
    assert torch.equal(result.color, drawn(SETTINGS, without).color)


def test_two_runs_give_the_same_bits_also_under_autocast_and_after_inference_mode():
    """Buffers that are kept for the next call must be fit for training, whoever made them."""
    settings, inputs = look_at(70, 50), single(cloud(400, size=(0.02, 0.2)))
    with torch.inference_mode():
        drawn(settings, inputs)
    runs = [draw_and_pull(settings, inputs)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        runs.append(draw_and_pull(settings, inputs))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_backward_twice_and_without_graph():
    leaves = leaves_of(cloud(6))
    color = drawn(SETTINGS, leaves).color
    first = torch.autograd.grad(color.sum(), leaves["means3D"], retain_graph=True)[0]
    second = torch.autograd.grad(color.sum(), leaves["means3D"])[0]
    assert torch.equal(first, second)
    with torch.no_grad():
        assert not drawn(SETTINGS, leaves).color.requires_grad


OFFSETS = {"subpixel_offset": torch.zeros(16, 20, 2)}


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        ({"means2D": torch.full((6, 3), math.nan, dtype=torch.float64)}, {}),
        ({"opacities": cloud(6)["opacities"].view(-1)}, {}),
        ({}, {"sh_degree": 4}),
        ({}, OFFSETS),
    ],
    ids=["garbage in means2D", "opacities [P]", "degree 4", "pixels shifted by 0"],
)
def test_what_changes_nothing(changed, options):
    inputs = {"means2D": None, **cloud(6, degree=4)}
    expected = rasterize(SETTINGS, **inputs)
    assert torch.equal(rasterize(SETTINGS._replace(**options), **(inputs | changed)).color, expected.color)


@pytest.mark.parametrize("row", data(__file__)["refused"], ids=str)
def test_what_is_refused(row):
    settings, inputs = refused(row, (20, 16), cloud(6))
    with pytest.raises((ValueError, TypeError, RuntimeError), match=row["says"]):
        rasterize(settings, **inputs)


@pytest.mark.parametrize("alone", ["means3D", "opacities", "shs", "scales", "rotations", "means2D"])
def test_one_input_alone_may_need_a_gradient(alone):
    inputs = cloud(6) | {"means2D": torch.zeros(6, 3, dtype=torch.float64)}
    everything = leaves_of(inputs)
    only = inputs | {alone: inputs[alone].clone().requires_grad_()}
    rasterize(SETTINGS, **everything).color.square().sum().backward()
    rasterize(SETTINGS, **only).color.square().sum().backward()
    assert torch.equal(everything[alone].grad, only[alone].grad)
    assert all(tensor.grad is None for name, tensor in only.items() if name != alone)


def test_buffers_stay_within_the_budget():
    budget, sizes = 2 << 20, []

    def work():  # a fresh thread has no buffers yet
        inputs = cloud(300, size=(0.1, 0.5))
        inputs["opacities"][:] = 0.995  # so that the buffer of the cap is needed, too
        leaves = leaves_of(single(inputs))
        drawn(look_at(150, 110), leaves, budget_bytes=budget).color.sum().backward()
        kept = blending._workspace(leaves["means3D"])
        sizes.extend(buffer.numel() * buffer.element_size() for buffer in kept._flat.values())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(sizes) == 6 and 0.5 * budget < sum(sizes) <= budget


@pytest.mark.slow
def test_a_compiled_caller_gets_the_same():
    leaves = leaves_of(cloud(6))

    def doubled(**leaves):
        return drawn(SETTINGS, leaves).color * 2.0

    results = []
    for call in (doubled, torch.compile(doubled, backend="aot_eager")):
        color = call(**leaves)
        results.append([color, *torch.autograd.grad(color.square().sum(), list(leaves.values()))])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
