"""Properties of the rasterizer over random shapes, types and options, and `gradcheck` on tiny scenes."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from splatfix.kernels.rasterizer import rasterize

from .compare import IMAGES
from .scenes import cloud, look_at, rand
from .test_rasterizer import compare

COMMON = settings(
    deadline=None, max_examples=15, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)

cameras = st.fixed_dictionaries(
    {
        "width": st.integers(1, 40),
        "height": st.integers(1, 40),
        "fov": st.floats(0.3, 2.0),
        "distance": st.floats(0.5, 6.0),
        "roll": st.floats(-3.0, 3.0),
    }
)
rules = st.sampled_from([{}, {"antialiasing": True}, {"kernel_size": 0.1}, {"scale_modifier": 0.5}])
clouds = st.fixed_dictionaries(
    {
        "count": st.integers(1, 12),
        "seed": st.integers(0, 10_000),
        "spread": st.floats(0.1, 3.0),
        "precomputed": st.booleans(),
        "covariance": st.booleans(),
    }
)


@COMMON
@given(camera=cameras, rule=rules, scene=clouds)
def test_equals_the_reference_everywhere(camera, rule, scene):
    compare(look_at(**camera, **rule), cloud(**scene))


@COMMON
@given(camera=cameras, rule=rules, scene=clouds)
def test_float32_is_the_rounded_float64(camera, rule, scene):
    """Both precisions see the same numbers; only a pixel on the 1/255 or 1e-4 threshold may fall on the other side."""
    view, inputs = look_at(**camera, **rule), {k: v.float() for k, v in cloud(**scene).items()}
    single = rasterize(view, means2D=None, **inputs)
    double = rasterize(view, means2D=None, **{k: v.double() for k, v in inputs.items()})
    assert torch.equal(single.radii, double.radii)
    for name in IMAGES:
        exact = getattr(double, name)
        error = (getattr(single, name) - exact).abs() / exact.abs().max().clamp_min(1.0)
        assert error.max() < 5e-3
        assert (error > 1e-5).sum() <= 0.002 * error.numel() + 1


def smooth_scene(**kind: Any) -> dict[str, torch.Tensor]:
    """Three well-visible Gaussians whose alpha crosses no threshold inside the image."""
    inputs = cloud(3, seed=3, spread=0.25, size=(2.0, 3.0), **kind)
    inputs["opacities"] = inputs["opacities"] * 0.5 + 0.2
    return inputs


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ({}, {}),
        ({"precomputed": True}, {"antialiasing": True}),
        ({"covariance": True}, {"kernel_size": 0.2}),
        ({"degree": 1}, {"sh_degree": 1}),
    ],
    ids=["sh-scales", "colours-antialiased", "covariance-mip", "degree-one"],
)
def test_gradcheck(kind, options):
    view, inputs = look_at(11, 9, **options), smooth_scene(**kind)
    names = list(inputs)
    drawn_as = [name for name in IMAGES if name != "radii"]

    def projections(*tensors):
        got = rasterize(view, means2D=None, **dict(zip(names, tensors, strict=True)))
        return tuple(
            (getattr(got, name) * (2 * rand(*getattr(got, name).shape) - 1)).sum() for name in drawn_as
        )

    alphas = rasterize(view, means2D=None, **inputs).alpha
    assert alphas.min() > 0.2 and alphas.max() < 0.999
    assert torch.autograd.gradcheck(projections, [t.requires_grad_() for t in inputs.values()])
