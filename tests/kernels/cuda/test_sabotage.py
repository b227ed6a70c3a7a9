"""Each wrong kernel here differs from the right one by an expression, and the comparison with the PyTorch kernels sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from tests.kernels.cuda.emulator import COMPILER, SOURCES, Emulated, KernelError
from tests.kernels.cuda.test_rasterizer import compare
from tests.kernels.rasterizer_compare import cloud, look_at

WIDE = {"bg": torch.rand(19, dtype=torch.float64, generator=torch.Generator().manual_seed(4))}
UPSTREAM = {"upstream_gradients": True}
MIP = {"kernel_size": 0.1, **UPSTREAM}
# what is changed: (file, right, wrong, options of the camera, columns of means2D)
WRONG: dict[str, tuple[str, str, str, dict[str, Any], int]] = {
    "a tile of FastGS is 15 wide": ("tiles.h", "compact > 0 ? TILE :", "compact > 0 ? TILE - 1 :", {"compact_box": 0.5}, 4),
    "no smaller ellipse": ("tiles.h", "(compact > 0 ? compact : (real)1)", "(real)1", {"compact_box": 0.5}, 4),
    "drawn outside the box": ("projection.cu", " || (compact > 0 && !tiles)", "", {"compact_box": 0.1}, 4),
    "the modifier": ("projection.cu", "(upstream ? (real)1 : modifier)", "modifier", {"scale_modifier": 0.7, **UPSTREAM}, 3),
    "sharp variances": ("projection.cu", "if (upstream) {", "if (!upstream) {", {"antialiasing": True, **UPSTREAM}, 3),
    "no epsilon in a root": ("projection.cu", "it.share / (root * root) :", "1 / it.share :", MIP, 3),
    "no epsilon at a determinant": ("projection.cu", "it.det * it.det + (real)1e-6", "it.det * it.det", MIP, 3),
    "every pass the first channels": ("blending.cu", "features[row + from + c]", "features[row + c]", WIDE, 3),
    "gradients of the first channels": ("blending.cu", "upstream[(from + c) * plane", "upstream[c * plane", WIDE, 3),
    "summed where others are": ("blending.cu", "row + SUMS + from + c", "row + SUMS + c", WIDE, 3),
    "the last pass as wide as the others": ("blending.cu", "min(from + COLORS, channels)", "from + COLORS", WIDE, 3),
    "no absolute gradients": ("blending.cu", "#define ABSOLUTE 0", "#undef ABSOLUTE\n#define ABSOLUTE 0", {}, 4),
    "what is still ahead": ("blending.cu", "passing.ahead / (1 - alpha)", "passing.ahead", {}, 3),
    "the first half of the Gaussians twice": ("blending.cu", "near[place + k]", "near[k]", {}, 3),
    "centers without colors": ("projection.cu", "plus(to_means[i], times(inverse", "plus(to_means[i], times(0 * inverse", {}, 3),
}  # fmt: skip


def scene(options: dict[str, Any], columns: int) -> None:
    """Some Gaussians beside the image, and more than 32 on a tile."""
    inputs = cloud(400, spread=1.5, size=(0.02, 0.3), precomputed="bg" in options)
    inputs["opacities"] *= 0.3
    if "bg" in options:
        inputs["colors_precomp"] = torch.rand(400, 19, dtype=torch.float64)
    compare(look_at(60, 45, **options), inputs, torch.float64, columns=columns)


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file, right, wrong, options, columns = WRONG[name]

    def module(source: str, defines: Mapping[str, object], like: torch.Tensor) -> Emulated:
        text = (SOURCES / source).read_text()
        if file.endswith(".h"):
            text = text.replace(
                f'#include "{file}"', (SOURCES / file).read_text().replace("#pragma once", "")
            )
        if "ABSOLUTE" in right:
            defines = {key: value for key, value in defines.items() if key != "ABSOLUTE"}
        if source == file or f'#include "{file}"' in (SOURCES / source).read_text():
            assert text.count(right) == 1
            text = text.replace(right, wrong)
        return Emulated(text, defines, like.dtype)

    monkeypatch.setattr("splatfix.kernels.rasterizer_cuda.module", module)
    with pytest.raises((AssertionError, KernelError)):
        scene(options, columns)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_is_right_is_not(name: str, emulated: None) -> None:
    """The same scenes with the kernels as they are."""
    scene(*WRONG[name][3:])
