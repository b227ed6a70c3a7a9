"""Ours against the kept arrays of the CUDA rasterizer; and that making and checking them works, with a stand-in."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from . import rasterizer_golden as golden
from .rasterizer_golden import OURS, beyond

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


@pytest.mark.parametrize(
    ("spoilt", "factor"),
    [
        ("opaque/color", 1.5),
        ("opaque/color", np.nan),
        ("opaque/radii", 3),
        ("opaque/grad_means3D", 1.1),
        ("opaque/input/means3D", 1.1),
    ],
)
def test_a_difference_is_seen(made, tmp_path, spoilt, factor):
    """Inputs must be those of the scene."""
    arrays = dict(np.load(made))
    arrays[spoilt] = (arrays[spoilt] * factor).astype(arrays[spoilt].dtype)
    path = tmp_path / "spoilt.npz"
    np.savez(path, **arrays)
    if "input" in spoilt:
        with pytest.raises(ValueError, match="scene opaque: the stored means3D"):
            golden.check(OURS, path)
    else:
        assert [name for name, row in golden.check(OURS, path).items() if beyond(row)] == ["opaque"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")
def test_without_a_gpu_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rasterizer_golden", str(tmp_path / "arrays.npz")])
    assert golden.main() == 3
    assert "no CUDA GPU" in capsys.readouterr().out and not list(tmp_path.iterdir())
