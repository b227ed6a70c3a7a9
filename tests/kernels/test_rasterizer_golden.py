"""Ours against the kept arrays of the CUDA rasterizer; and that making and checking them works, with a stand-in."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from splatfix.kernels import rasterizer

from . import rasterizer_golden as golden
from .rasterizer_compare import one_thread  # noqa: F401 - a fixture

KEPT = Path(__file__).parents[1] / "records" / "rasterizer_cuda.npz"


class V1Settings(rasterizer.GaussianRasterizationSettings):
    """The twelve fields of the first generation, as the extension names them."""

    _fields = rasterizer.GaussianRasterizationSettings._fields[:12]


STAND_IN = SimpleNamespace(
    GaussianRasterizationSettings=V1Settings, GaussianRasterizer=rasterizer.GaussianRasterizer
)


def off(row: dict[str, float]) -> list[str]:
    """What lies beyond the tolerances: single precision on either side, in another order."""
    limits = {"radii": 0.0, "color": 1e-2, "color_off": 1e-3}
    return [f"{name}: {value:.1e}" for name, value in row.items() if not value <= limits.get(name, 1e-2)]


@pytest.mark.skipif(
    not KEPT.exists(), reason=f"no {KEPT.name} yet: it is made on a GPU, see rasterizer_golden.py"
)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_equals_the_kept_arrays_of_the_extension(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    for name, row in golden.check(STAND_IN, KEPT, device).items():
        assert off(row) == [], name


def test_arrays_of_a_stand_in_are_made_and_checked(tmp_path):
    path = tmp_path / "arrays.npz"
    golden.make(STAND_IN, "cpu", path, {"gpu": "none, a stand-in"})
    assert path.stat().st_size < 400_000
    table = golden.check(STAND_IN, path)
    assert set(table) == set(golden.SCENES)
    for name, row in table.items():
        assert off(row) == [], name
        assert {"grad_means3D", "grad_means2D", "grad_opacities", "color", "radii"} <= set(row)


@pytest.mark.parametrize("spoilt", ["opaque/color", "harmonics/grad_shs", "scaled/radii"])
def test_a_difference_is_seen(tmp_path, spoilt):
    path = tmp_path / "arrays.npz"
    golden.make(STAND_IN, "cpu", path, {})
    arrays = dict(np.load(path))
    arrays[spoilt] = (arrays[spoilt] * 1.1 + 2).astype(arrays[spoilt].dtype)
    np.savez(path, **arrays)
    table = golden.check(STAND_IN, path)
    assert [name for name, row in table.items() if off(row)] == [spoilt.split("/")[0]]


def test_stored_inputs_must_be_those_of_the_scene(tmp_path):
    path = tmp_path / "arrays.npz"
    golden.make(STAND_IN, "cpu", path, {})
    arrays = dict(np.load(path))
    arrays["opaque/input/means3D"] = arrays["opaque/input/means3D"] + 1e-3
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="scene opaque: the stored means3D"):
        golden.check(STAND_IN, path)


def test_another_variant_cannot_make_them():
    assert golden.variant(STAND_IN) is None
    mip = SimpleNamespace(GaussianRasterizationSettings=rasterizer.GaussianRasterizationSettings)
    assert "kernel_size" in (golden.variant(mip) or "")


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")
def test_without_a_gpu_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rasterizer_golden", str(tmp_path / "arrays.npz")])
    assert golden.main() == 3
    assert "no CUDA GPU" in capsys.readouterr().out and not list(tmp_path.iterdir())
