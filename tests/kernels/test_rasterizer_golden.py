"""Ours against the kept arrays of the CUDA rasterizer; and that making and checking them works, with a stand-in."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from splatfix.kernels import rasterizer

from . import rasterizer_golden as golden
from .rasterizer_golden import OURS, beyond, differences

KEPT = Path(__file__).parents[1] / "records" / "rasterizer_cuda.npz"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Arrays of ours, in the place of the extension's."""
    path = tmp_path_factory.mktemp("golden") / "arrays.npz"
    golden.make(OURS, "cpu", path, {"gpu": "none, a stand-in"})
    return path


@pytest.mark.skipif(
    not KEPT.exists(), reason=f"no {KEPT.name} yet: it is made on a GPU, see rasterizer_golden.py"
)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_equals_the_kept_arrays_of_the_extension(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    for name, row in golden.check(OURS, KEPT, device).items():
        assert beyond(row) == [], name


def test_arrays_of_a_stand_in_are_made_and_checked(made):
    assert made.stat().st_size < 400_000
    table = golden.check(OURS, made)
    assert set(table) == set(golden.SCENES)
    for name, row in table.items():
        assert beyond(row) == [], name
        assert {"grad_means3D", "grad_means2D", "grad_opacities", "color", "radii"} <= set(row)


@pytest.mark.parametrize("spoilt", ["opaque/color", "opaque/input/means3D"])
def test_a_difference_is_seen(made, tmp_path, spoilt):
    """Inputs must be those of the scene."""
    arrays = dict(np.load(made))
    arrays[spoilt] = arrays[spoilt] + np.float32(0.1)
    path = tmp_path / "spoilt.npz"
    np.savez(path, **arrays)
    if "input" in spoilt:
        with pytest.raises(ValueError, match="scene opaque: the stored means3D"):
            golden.check(OURS, path)
    else:
        assert [name for name, row in golden.check(OURS, path).items() if beyond(row)] == ["opaque"]


ARRAYS = {
    "color": np.linspace(0, 1, 300).reshape(3, 10, 10),
    "radii": np.arange(5),
    "grad_means2D": np.ones(5),
    "grad_means3D": np.linspace(-2, 2, 15).reshape(5, 3),
}


@pytest.mark.parametrize(
    ("name", "spoilt", "seen"),
    [
        ("color", ARRAYS["color"], {}),
        ("color", ARRAYS["color"] + 0.5, {"color": 0.5, "pixels": 1.0}),
        ("radii", ARRAYS["radii"] * 3, {"radii": 0.8}),
        ("grad_means2D", ARRAYS["grad_means2D"] * 1.1, {"grad_means2D": 0.1}),
        ("grad_means3D", np.full((5, 3), np.nan), {"grad_means3D": np.inf}),
        ("color", np.full((3, 10, 10), np.nan), {"color": np.inf, "pixels": 1.0}),
    ],
)
def test_what_differs(name, spoilt, seen):
    table = differences(ARRAYS | {name: spoilt}, ARRAYS)
    assert table.keys() == {"color", "pixels", "radii", "grad_means2D", "grad_means3D"}
    assert {key: value for key, value in table.items() if value} == pytest.approx(seen)
    assert bool(beyond(table)) is bool(seen)


def test_other_shapes_are_not_compared():
    with pytest.raises(ValueError, match="differ in shape"):
        differences(ARRAYS | {"radii": np.arange(4)}, ARRAYS)


def test_another_variant_cannot_make_them():
    assert golden.variant(OURS) is None
    mip = SimpleNamespace(GaussianRasterizationSettings=rasterizer.GaussianRasterizationSettings)
    assert "kernel_size" in (golden.variant(mip) or "")


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")
def test_without_a_gpu_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rasterizer_golden", str(tmp_path / "arrays.npz")])
    assert golden.main() == 3
    assert "no CUDA GPU" in capsys.readouterr().out and not list(tmp_path.iterdir())
