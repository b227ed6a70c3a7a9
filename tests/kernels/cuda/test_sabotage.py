"""Each wrong kernel of sabotages.toml differs from the right one by an expression, and a comparison with PyTorch sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from splatfix.core.toml import parse_toml

from ..gaussian_cases import faint
from ..scenes import cloud, discs, look_at, rand
from . import test_contributions, test_gsplat, test_rasterizer, test_surfels
from .emulator import KernelError, changed, needs_compiler, use_kernels

WRONG = parse_toml(Path(__file__).with_name("sabotages.toml").read_text(encoding="utf-8"))
DOUBLE = torch.float64
UPSTREAM = {"upstream_gradients": True}


def gaussians(columns: int = 3, **options: Any) -> None:
    """Some beside the image, and more than 32 on a tile."""
    inputs = faint(400, 0.3, spread=1.5, size=(0.02, 0.3), precomputed="bg" in options)
    if "bg" in options:
        inputs["colors_precomp"] = rand(400, 19, seed=5)
    test_rasterizer.compare(look_at(60, 45, **options), inputs, columns=columns)


def surfels() -> None:
    """Steep and large ones among small ones, some before the near plane, layers of them, and one that a warp lists."""
    inputs = discs(160, spread=1.5, size=(0.005, 0.5))
    inputs["scales"][0] = 4.0
    inputs["means3D"][:8] += (look_at(8, 8).campos - inputs["means3D"][:8]) * 0.9
    inputs["rotations"] = inputs["rotations"] * (0.5 + rand(160, 1, seed=2))
    test_surfels.compare(look_at(150, 130), inputs)


SCENES: dict[str, Callable[[], None]] = {
    "Gaussians": gaussians,
    "four columns": lambda: gaussians(4),
    "FastGS": lambda: gaussians(4, compact_box=0.5),
    "small boxes": lambda: gaussians(4, compact_box=0.1),
    "modifier": lambda: gaussians(scale_modifier=0.7, **UPSTREAM),
    "antialiasing": lambda: gaussians(antialiasing=True, **UPSTREAM),
    "mip": lambda: gaussians(kernel_size=0.1, **UPSTREAM),
    "many channels": lambda: gaussians(bg=rand(19, seed=4)),
    "discs": surfels,
    "sums": lambda: test_contributions.compare(look_at(24, 20), cloud(400, spread=0.3)),
    "gsplat's shapes": lambda: test_gsplat.test_covariances((True, True), False, DOUBLE),
    "gsplat's harmonics": lambda: test_gsplat.test_harmonics(4, True, DOUBLE),
    "gsplat's relocation": lambda: test_gsplat.test_relocation(DOUBLE),
    "gsplat's adam": lambda: test_gsplat.test_adam(True, DOUBLE),
    "gsplat's projection": lambda: test_gsplat.test_projection("batches", True, DOUBLE),
    "gsplat's needles": lambda: test_gsplat.test_projection("pinhole", True, torch.float32),
    "gsplat's covariances": lambda: test_gsplat.test_projection("covariances", True, DOUBLE),
    "gsplat's packed": lambda: test_gsplat.test_packed_projection("batches", DOUBLE),
    "gsplat's tiles": lambda: test_gsplat.test_tiles(16, True),
    "gsplat's pixels": lambda: test_gsplat.pixels(
        DOUBLE, channels=20, background=True, masks=True, count=300
    ),
    "gsplat's absolute": lambda: test_gsplat.pixels(DOUBLE, absolute=True),
    "gsplat's full": lambda: test_gsplat.pixels(torch.float32, count=600, background=True, slack=3.0),
    "gsplat's faint": lambda: test_gsplat.pixels(DOUBLE, count=600, faint=True),
    "gsplat's indices": lambda: test_gsplat.test_indices((0, 1), DOUBLE),
    "gsplat's discs": lambda: test_gsplat.test_projection_of_surfels(2, False, DOUBLE),
    "gsplat's surfels": lambda: test_gsplat.surfels(DOUBLE, channels=6, background=True, count=300),
}


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(("of", "name"), [(of, name) for of, rows in WRONG.items() for name in rows])
def test_what_is_wrong_is_seen(of: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen_by, *change = WRONG[of][name]
    use_kernels(changed(*change), monkeypatch)
    with pytest.raises((AssertionError, KernelError)):
        SCENES[seen_by]()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_what_is_right_is_not(name: str, emulated: None) -> None:
    SCENES[name]()
