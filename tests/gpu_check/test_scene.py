"""The frozen scene's arrays side by side: what is off is seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .context import Failed
from .steps.scene import differences

ARRAYS = {
    "color": np.linspace(0, 1, 300).reshape(3, 10, 10),
    "radii": np.arange(5),
    "screen": np.ones(5),
    "grad_means3D": np.linspace(-2, 2, 15).reshape(5, 3),
}


def written(folder: Path, name: str, **other: np.ndarray) -> Path:
    np.savez(folder / name, **{**ARRAYS, **other})
    return folder / name


def test_equal_arrays_differ_by_nothing(tmp_path: Path) -> None:
    table = differences(written(tmp_path, "a.npz"), written(tmp_path, "b.npz"))
    assert table.keys() == {"color", "pixels", "radii", "screen", "grad_means3D"}
    assert not any(table.values())


@pytest.mark.parametrize(
    ("name", "spoilt", "seen"),
    [
        ("color", ARRAYS["color"] + 0.5, {"color": 0.5, "pixels": 1.0}),
        ("radii", ARRAYS["radii"] * 3, {"radii": 0.8}),
        ("screen", ARRAYS["screen"] * 1.1, {"screen": 0.1}),
        ("grad_means3D", ARRAYS["grad_means3D"] * 0.5, {"grad_means3D": 0.5}),
        ("grad_means3D", np.full((5, 3), np.nan), {"grad_means3D": np.inf}),
        ("color", np.full((3, 10, 10), np.nan), {"color": np.inf, "pixels": 1.0}),
    ],
)
def test_a_difference_is_seen(tmp_path: Path, name: str, spoilt: np.ndarray, seen: dict[str, float]) -> None:
    table = differences(written(tmp_path, "a.npz", **{name: spoilt}), written(tmp_path, "b.npz"))
    assert {key: value for key, value in table.items() if value} == pytest.approx(seen)


def test_other_shapes_are_not_compared(tmp_path: Path) -> None:
    with pytest.raises(Failed):
        differences(written(tmp_path, "a.npz", radii=np.arange(4)), written(tmp_path, "b.npz"))
