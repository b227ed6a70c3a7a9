"""The rasterizer against the naive float64 reference: values and gradients, in every way it can be called."""

from __future__ import annotations

import pytest
import torch

from splatfix.kernels.rasterizer import rasterize

from .rasterizer_compare import cloud, compare, look_at, one_thread  # noqa: F401 - a fixture

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


@BOTH
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_spherical_harmonics(degree, dtype):
    compare(look_at(29, 21, sh_degree=degree), cloud(25, degree=degree), dtype)


def test_degree_four_is_degree_three():
    settings, inputs = look_at(24, 17), cloud(12, degree=4)
    three = rasterize(settings, means2D=None, **inputs)
    four = rasterize(settings._replace(sh_degree=4), means2D=None, **inputs)
    assert torch.equal(three.color, four.color)


@BOTH
def test_many_layers_and_several_tiles(dtype):
    compare(look_at(50, 37), cloud(80, size=(0.1, 0.6)), dtype)


@BOTH
@pytest.mark.parametrize("precomputed", [False, True])
@pytest.mark.parametrize("covariance", [False, True])
def test_ways_to_give_colour_and_shape(precomputed, covariance, dtype):
    compare(look_at(33, 18), cloud(20, precomputed=precomputed, covariance=covariance), dtype)


@BOTH
@pytest.mark.parametrize(
    "options",
    [
        {"antialiasing": True},
        {"kernel_size": 0.1},
        {"kernel_size": 0.3},
        {"scale_modifier": 0.35},
        {"subpixel": True},
        {"subpixel": True, "kernel_size": 0.1},
    ],
    ids=str,
)
def test_options(options, dtype):
    options = dict(options)
    if options.pop("subpixel", False):
        generator = torch.Generator().manual_seed(5)
        options["subpixel_offset"] = torch.rand(19, 35, 2, generator=generator, dtype=torch.float64) * 2 - 1
    compare(look_at(35, 19, **options), cloud(20, size=(0.003, 0.3)), dtype)


def test_subpixel_offset_of_zero_changes_nothing():
    inputs = cloud(15)
    plain = rasterize(look_at(35, 19), means2D=None, **inputs)
    offset = rasterize(look_at(35, 19, subpixel_offset=torch.zeros(19, 35, 2)), means2D=None, **inputs)
    assert torch.equal(plain.color, offset.color)


def test_any_number_of_channels():
    settings = look_at(20, 20, bg=torch.rand(5, dtype=torch.float64))
    inputs = cloud(10, precomputed=True)
    inputs["colors_precomp"] = torch.rand(10, 5, dtype=torch.float64)
    compare(settings, inputs)


@pytest.mark.parametrize("outputs", [("color",), ("depth",), ("alpha",), ("invdepth",)], ids=str)
def test_gradient_of_one_output_alone(outputs):
    compare(look_at(25, 25), cloud(15), outputs=outputs)


@BOTH
def test_unnormalised_quaternions_are_used_as_given(dtype):
    inputs = cloud(12)
    inputs["rotations"] = inputs["rotations"] * 1.3
    compare(look_at(25, 25), inputs, dtype)
