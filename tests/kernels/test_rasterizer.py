"""The rasterizer against the naive float64 reference: values and gradients, in every way it can be called."""

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from splatfix.kernels.rasterizer import rasterize

from . import rasterizer_reference as reference
from .compare import BOTH, IMAGES, Drawn, Expected, assert_agree, assert_as_expected, expected_of
from .gaussian_cases import CASES, one
from .scenes import Inputs, cloud, look_at, rand

VALUE, GRADIENT = 1e-5, 1e-4
"""Largest errors in float32."""
TOLERANCES = {torch.float32: (VALUE, GRADIENT), torch.float64: (1e-9, 1e-7)}

sizes = dict.fromkeys(("width", "height"), st.integers(1, 40))
views = {"fov": st.floats(0.3, 2.0), "distance": st.floats(0.5, 6.0), "roll": st.floats(-3.0, 3.0)}
cameras = st.fixed_dictionaries(sizes | views)
rules = st.sampled_from([{}, {"antialiasing": True}, {"kernel_size": 0.1}, {"scale_modifier": 0.5}])
made = {"count": st.integers(1, 12), "seed": st.integers(0, 10_000), "spread": st.floats(0.1, 3.0)}
clouds = st.fixed_dictionaries(made | dict.fromkeys(("precomputed", "covariance"), st.booleans()))


def compare(
    view: Any, inputs: Inputs, dtype: torch.dtype = torch.float64, **options: Any
) -> tuple[Drawn, Inputs]:
    return assert_agree(reference.rasterize, rasterize, view, inputs, dtype, *TOLERANCES[dtype], **options)


@cache
def expected(name: str) -> tuple[int, Expected]:
    """Of inputs in single precision, for both: the reference takes nearly all of the time."""
    made = CASES[name]()
    options = {"columns": made.columns}
    return made.columns, expected_of(reference.rasterize, *made[:2], torch.float32, **options)


@BOTH
@pytest.mark.parametrize("name", CASES)
def test_it_follows_the_reference(name: str, dtype: torch.dtype) -> None:
    columns, given = expected(name)
    assert_as_expected(given, rasterize, dtype, *TOLERANCES[dtype], columns=columns)


@settings(deadline=None, max_examples=15, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(camera=cameras, rule=rules, scene=clouds)
def test_it_follows_the_reference_everywhere(
    camera: dict[str, Any], rule: dict[str, Any], scene: dict[str, Any]
) -> None:
    compare(look_at(**camera, **rule), cloud(**scene))


@pytest.mark.parametrize("output", ["color", "invdepth", "alpha", "depth"])
def test_gradient_of_one_output_alone(output: str) -> None:
    compare(look_at(25, 25), cloud(15), outputs=[IMAGES.index(output)])


def test_any_number_of_channels() -> None:
    inputs = cloud(10, precomputed=True) | {"colors_precomp": rand(10, 5)}
    compare(look_at(20, 20, bg=rand(5, seed=1)), inputs)


def test_an_opaque_gaussian_is_cut_at_the_tiles_of_its_radius() -> None:
    """alpha = 1/255 lies at 3.33 sigma for opacity 1, the radius at 3: v1 cuts there at 16-pixel tiles, and so do we."""
    view, cut = look_at(64, 64, roll=0.0), 0
    for step in range(12):
        inputs = one((0.06 * step - 0.3, 0.04 * step, 0.0), (0.375, 0.375, 0.375), opacity=1.0)
        alpha = compare(view, inputs)[0][3][0]
        for edge in (16, 32, 48):
            inside, outside = alpha[:, edge - 1].amax(), alpha[:, edge].amax()
            cut += bool((inside == 0) != (outside == 0) and max(inside, outside) > 1.5 / 255)
    assert cut > 0, "no step exercised the cut"


@pytest.mark.parametrize(
    "options", [{"scale_modifier": 0.7}, {"antialiasing": True}, {"kernel_size": 0.2}], ids=str
)
def test_gradients_equal_finite_differences(options: dict[str, Any]) -> None:
    """Where upstream's do not (docs/trainer.md): three well-visible Gaussians whose alpha crosses no threshold in the image."""
    view, inputs = look_at(11, 9, **options), cloud(3, seed=3, spread=0.25, size=(2.0, 3.0))
    inputs["opacities"] = inputs["opacities"] * 0.5 + 0.2
    names = list(inputs)

    def projections(*tensors: Any) -> tuple[torch.Tensor, ...]:
        got = rasterize(view, means2D=None, **dict(zip(names, tensors, strict=True)))
        images = [getattr(got, name) for name in IMAGES if name != "radii"]
        return tuple((image * (2 * rand(*image.shape) - 1)).sum() for image in images)

    alphas = rasterize(view, means2D=None, **inputs).alpha
    assert alphas.min() > 0.2 and alphas.max() < 0.999
    leaves = [item.requires_grad_() for item in inputs.values()]
    assert torch.autograd.gradcheck(projections, leaves, fast_mode=True)
