"""Maps, features, pose and the per-Gaussian sums against the naive float64 renderer, whose own weights say what each must be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.kernels.compositing import Composite, composite
from splatfix.kernels.contributions import Contributions, contributions, screen_positions
from splatfix.kernels.rasterizer import rasterize
from tests.tables import data

from . import rasterizer_reference as reference
from .compare import BOTH, assert_all_close, assert_close, in_precision, leaves_of
from .scenes import cloud, look_at, rand

HEIGHT, WIDTH = 29, 37


def gradients(loss: Tensor, *of: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, of))


@BOTH
@pytest.mark.parametrize("given", ["shs", "colors"])
def test_features_have_the_weights_of_the_colors(given: str, dtype: torch.dtype) -> None:
    """Two kinds at once, over black, with the gradient of a renderer that draws each as colors."""
    inputs = cloud(25, precomputed=given == "colors")
    many, one = rand(25, 1, 5, seed=7), rand(25, 2, seed=8)
    settings = look_at(WIDTH, HEIGHT)
    pulled = [rand(width, HEIGHT, WIDTH, seed=width) for width in (3, 5, 2)]
    exact = leaves_of({**inputs, "many": many, "one": one}, torch.float64)
    expected, loss = [], torch.zeros((), dtype=torch.float64)
    shape = {name: exact[name] for name in ("means3D", "opacities", "scales", "rotations")}
    kinds = [(settings, {key: exact[key] for key in inputs if key not in shape})]
    for name, width in (("many", 5), ("one", 2)):
        black = settings._replace(bg=torch.zeros(width))
        kinds.append((black, {"colors_precomp": exact[name].reshape(25, -1)}))
    for (at, colors), pull in zip(kinds, pulled, strict=True):
        expected.append(reference.render(at, **shape, **colors).color)
        loss = loss + (expected[-1] * pull).sum()
    slopes = gradients(loss, *exact.values())

    own = leaves_of({**inputs, "many": many, "one": one}, dtype)
    arguments = {name: own[name] for name in inputs}
    result = composite(
        in_precision(settings, dtype), means2D=None, **arguments, features=[own["many"], own["one"]]
    )
    near = 1e-9 if dtype == torch.float64 else 2e-5
    maps = (result.color, *result.features)
    assert_all_close("maps", maps, expected, near, least=1.0)
    loss = sum((made * pull.to(dtype)).sum() for made, pull in zip(maps, pulled, strict=True))
    near = 1e-8 if dtype == torch.float64 else 1e-4
    assert_all_close(own, gradients(loss, *own.values()), slopes, near, least=1.0)


def test_depth_and_alpha_are_sums_of_weights() -> None:
    inputs, settings = cloud(40), look_at(WIDTH, HEIGHT)
    drawn = reference.render(settings, **inputs)
    result = composite(settings, means2D=None, **inputs)
    view = inputs["means3D"] @ settings.viewmatrix[:3, 2] + settings.viewmatrix[3, 2]
    assert torch.allclose(result.alpha[0], drawn.weights.sum(0))
    assert torch.allclose(result.depth[0], (drawn.weights * view[:, None, None]).sum(0))
    assert torch.allclose(result.invdepth[0], (drawn.weights / view[:, None, None]).sum(0))


def test_normals_are_the_shortest_axes_turned_to_the_camera() -> None:
    """Against a renderer that draws them as colors over black; the gradient of the rotations too."""
    inputs, settings = cloud(30), look_at(WIDTH, HEIGHT)
    own, exact = leaves_of(inputs), leaves_of(inputs)
    pull = rand(3, HEIGHT, WIDTH, seed=6)
    made = composite(settings, means2D=None, **own, with_normals=True).normals
    assert made is not None
    axes = []
    for mean, scale, turn in zip(exact["means3D"], exact["scales"], exact["rotations"], strict=True):
        axis = reference.rotation_matrix(turn)[:, int(scale.argmin())]
        axes.append(-axis if (mean - settings.campos) @ axis > 0 else axis)
    shape = {name: exact[name] for name in ("means3D", "opacities", "scales", "rotations")}
    black = settings._replace(bg=torch.zeros(3))
    expected = reference.render(black, **shape, colors_precomp=torch.stack(axes)).color
    assert_close("normals", made, expected, 1e-9, least=1.0)
    names = ("rotations", "opacities", "means3D")
    slopes = gradients((made * pull).sum(), *(own[name] for name in names))
    exactly = gradients((expected * pull).sum(), *(exact[name] for name in names))
    assert_all_close(names, slopes, exactly, 1e-8, least=1.0)
    given = rand(30, 3, seed=9)
    drawn = composite(settings, means2D=None, **inputs, features=[given], normals=given, with_normals=True)
    assert drawn.normals is not None and torch.equal(drawn.normals, drawn.features[0])


def moved(settings: Any, change: Tensor) -> Any:
    """The camera with Exp(change) W for its world-to-view matrix; `change` is (rho, theta)."""
    view = settings.viewmatrix.T
    projection = settings.projmatrix.T @ torch.linalg.inv(view)
    x, y, z = change[3:]
    generator = torch.zeros(4, 4, dtype=torch.float64)
    generator[:3, :3] = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    generator[:3, 3] = change[:3]
    view = torch.linalg.matrix_exp(generator) @ view
    return settings._replace(
        viewmatrix=view.T.contiguous(),
        projmatrix=(projection @ view).T.contiguous(),
        campos=torch.linalg.inv(view)[:3, 3],
    )


def loss_of(drawn: Composite) -> Tensor:
    by_color, by_map = rand(3, HEIGHT, WIDTH, seed=4), rand(1, HEIGHT, WIDTH, seed=5)
    return (drawn.color * by_color).sum() + ((drawn.depth + 2 * drawn.alpha) * by_map).sum()


@pytest.mark.parametrize("covariance", [False, True], ids=["scales", "covariance"])
def test_the_pose_has_the_gradient_of_a_camera_that_moves(covariance: bool) -> None:
    """Against central differences of cameras that were really moved; harmonics of degree 3 turn with them."""
    inputs, settings = cloud(30, covariance=covariance), look_at(WIDTH, HEIGHT)
    theta, rho = (torch.full((1, 3), 0.7, dtype=torch.float64, requires_grad=True) for _ in range(2))
    still = composite(settings, means2D=None, **inputs)
    drawn = composite(settings, means2D=None, **inputs, theta=theta, rho=rho)
    assert torch.equal(drawn.color, still.color), "what they hold is ignored"
    slopes = torch.cat([item.view(3) for item in gradients(loss_of(drawn), rho, theta)])
    steps = 1e-6 * torch.eye(6, dtype=torch.float64)
    expected = []
    for step in steps:
        both = [loss_of(composite(moved(settings, way), means2D=None, **inputs)) for way in (step, -step)]
        expected.append((both[0] - both[1]) / 2e-6)
    assert_close("pose", slopes, torch.stack(expected), 1e-6, least=1.0)


def test_the_absolute_statistic_and_the_sums() -> None:
    inputs, settings = cloud(30), look_at(WIDTH, HEIGHT)
    zeros = torch.zeros(30, 3, dtype=torch.float64)
    signed, absolute = zeros.clone().requires_grad_(), zeros.clone().requires_grad_()
    drawn = composite(settings, means2D=signed, **inputs, absolute=absolute, with_sums=True)
    by_sign, by_size = gradients((drawn.color * rand(3, HEIGHT, WIDTH)).sum(), signed, absolute)
    four = torch.zeros(30, 4, dtype=torch.float64, requires_grad=True)
    color = composite(settings, means2D=four, **inputs).color
    (both,) = gradients((color * rand(3, HEIGHT, WIDTH)).sum(), four)
    assert torch.equal(torch.cat([by_sign[:, :2], by_size[:, :2]], 1), both)
    assert (by_size[:, :2] >= by_sign[:, :2].abs() - 1e-12).all() and by_size.any()
    shape = {name: item for name, item in inputs.items() if name != "shs"}
    assert drawn.sums is not None
    for made, expected in zip(drawn.sums, contributions(settings, **shape), strict=True):
        assert torch.equal(made, expected)


def by_definition(settings: Any, inputs: dict[str, Any], pixel_weights: Any) -> dict[str, list[float]]:
    """Pixel after pixel, Gaussian after Gaussian: a Gaussian contributes where it is blended."""
    drawn = reference.render(settings, **inputs)
    centers, blended = drawn.pixel_positions[:, 0, 0], drawn.weights
    sums = {name: [0.0] * len(blended) for name in Contributions._fields}
    view = inputs["means3D"] @ settings.viewmatrix[:3, 2] + settings.viewmatrix[3, 2]
    order = view.argsort(stable=True)
    behind = torch.zeros_like(blended)
    behind[order] = 1 - blended[order].cumsum(0)
    strongest = blended.argmax(0) if len(blended) else None
    for i, (x, y) in enumerate(centers.tolist()):
        for row in range(settings.image_height):
            for column in range(settings.image_width):
                through = float(blended[i, row, column])
                if through == 0:
                    continue
                sums["pixels"][i] += 1
                sums["weight"][i] += float(pixel_weights[row, column])
                sums["blend"][i] += through
                sums["distance"][i] += ((x - column) ** 2 + (y - row) ** 2) ** 0.5
                sums["transmittance"][i] += float(behind[i, row, column]) + through
                sums["near"][i] += bool(behind[i, row, column] > 0.5)
                sums["strongest"][i] += bool(strongest[row, column] == i)
    return sums


SCENES = data(__file__)["scenes"]


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sums_follow_their_definition(name: str, dtype: Any) -> None:
    count, made, options = SCENES[name]
    inputs = {key: item for key, item in cloud(count, **made).items() if key != "shs"}
    if dtype == torch.float32:
        inputs = {key: item.float().double() for key, item in inputs.items()}
    settings = look_at(37, 29, **options)
    weights = rand(29, 37, seed=9)
    colors = torch.zeros(len(inputs["means3D"]), 3, dtype=torch.float64)
    expected = by_definition(settings, {**inputs, "colors_precomp": colors}, weights)
    given = {key: item.to(dtype) for key, item in inputs.items()}
    result = contributions(settings, **given, pixel_weights=weights.to(dtype))
    flat = contributions(settings, **given, pixel_weights=weights.to(dtype).view(-1))
    assert all(torch.equal(one, other) for one, other in zip(result, flat, strict=True))
    assert result.pixels.dtype == torch.int32 and result.weight.dtype == dtype
    for field, numbers in expected.items():
        exact = torch.tensor(numbers, dtype=torch.float64)
        # in float32 alpha may cross 1/255, or a pixel stop, one Gaussian earlier or later
        room = 1e-9 if dtype == torch.float64 else 2e-3 * max(1.0, float(exact.max()) if numbers else 0.0)
        assert torch.allclose(getattr(result, field).double(), exact, atol=room, rtol=0), field
    used = torch.zeros(len(colors), dtype=torch.int32)
    rasterize(
        in_precision(settings, dtype), **given, means2D=None, colors_precomp=colors.to(dtype), used=used
    )
    assert torch.equal(used, result.pixels.clamp_max(1))
    if name not in ("none", "one"):
        assert (result.pixels > 0).sum() > 3


def test_what_is_refused() -> None:
    """Half a pose, normals of covariances, a map of another size, moved pixels."""
    settings = look_at(8, 8)
    with pytest.raises(ValueError, match="both"):
        composite(settings, means2D=None, **cloud(3), theta=torch.zeros(3, dtype=torch.float64))
    with pytest.raises(ValueError, match="give both"):
        composite(settings, means2D=None, **cloud(3, covariance=True), with_normals=True)
    inputs = {key: item for key, item in cloud(3).items() if key != "shs"}
    with pytest.raises(ValueError, match=r"shape \(399,\), not one number for each of 20 x 20"):
        contributions(look_at(20, 20), **inputs, pixel_weights=torch.ones(399))
    with pytest.raises(ValueError, match="subpixel_offset"):
        contributions(look_at(20, 20, subpixel_offset=torch.zeros(20, 20, 2)), **inputs)


def test_screen_positions_are_those_of_the_renderer() -> None:
    inputs, settings = cloud(40, seed=3, spread=6.0), look_at(37, 29)
    drawn = reference.render(settings, **inputs)
    centers, depths = screen_positions(settings, inputs["means3D"], drawn.radii)
    observed = drawn.radii > 0
    assert 3 < observed.sum() < 40
    assert torch.allclose(centers[observed], drawn.pixel_positions[observed][:, 0, 0])
    view = inputs["means3D"] @ settings.viewmatrix[:3, 2] + settings.viewmatrix[3, 2]
    assert torch.allclose(depths[observed], view[observed])
    assert centers[~observed].abs().sum() == 0 and depths[~observed].abs().sum() == 0
