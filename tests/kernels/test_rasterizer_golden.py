"""Ours against the kept arrays of the CUDA rasterizer; and that a difference from them is seen."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from . import rasterizer_golden as golden
from .rasterizer_golden import OURS, beyond

KEPT = Path(__file__).parents[1] / "records" / "rasterizer_cuda.npz"


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_equals_the_kept_arrays_of_the_extension(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    for name, row in golden.check(OURS, KEPT, device).items():
        assert beyond(row) == [], name


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
def test_a_difference_is_seen(tmp_path, spoilt, factor):
    """Inputs must be those of the scene."""
    arrays = dict(np.load(KEPT))
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
