"""Each wrong kernel here differs from the right one by an expression, and the comparison with the PyTorch kernels sees it."""

from __future__ import annotations

from typing import Any

import pytest

from ..gaussian_cases import faint
from ..scenes import discs, look_at, rand
from .emulator import KernelError, changed, needs_compiler, use_kernels
from .test_rasterizer import compare
from .test_surfels import compare as compare_surfels

WIDE = {"bg": rand(19, seed=4)}
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

# of surfels.cu and what it stands on: (file, right, wrong)
WRONG_SURFELS: dict[str, tuple[str, str, str]] = {
    "an anchor a pixel off": ("surfels.cu", "it.dx = (real)x - s.anchor_x;", "it.dx = (real)x - s.anchor_x - 1;"),
    "the low-pass decides everywhere": ("surfels.cu", "<= low_pass * z * z;", "< 0;"),
    "a wider low-pass": ("surfels.cu", "const real low_pass = 2 *", "const real low_pass = 1 *"),
    "no near plane": ("surfels.cu", "if (!(it.depth >= NEAR) ||", "if ("),
    "the median behind the half": ("surfels.cu", "left > (real)0.5", "left > (real)0.4"),
    "distortion without those in front": ("surfels.cu", "(m * m * (1 - left) + second_moment", "(m * m * (1 - left)"),
    "distortion's slope in weight": ("surfels.cu", "by_alpha + by_distortion * moments", "by_alpha + 0 * moments"),
    "distortion's slope in depth": ("surfels.cu", "(g.m1 + 2 * g.m2 * m)", "(g.m1 + g.m2 * m)"),
    "no gradient through the median": ("surfels.cu", "by_depth += g.by_median;", ";"),
    "the background's part of alpha": ("surfels.cu", "pull.m0 -= pull.gradient[c] * background[c];", ";"),
    "the low-pass moves the disc": ("surfels.cu", "} else {  // the ray's", "} if (true) {  // the ray's"),
    "the anchor's part": ("surfels.cu", "plus(by_px, times(meeting.anchor_x, by_p0))", "by_px"),
    "the center does not move": ("surfels.cu", "by_x = sums[row + 10],", "by_x = 0 * sums[row + 10],"),
    "normals all one way": ("surfels.cu", "sign = disc.turned ? -1 : 1", "sign = 1"),
    "the quaternion's length": ("discs.h", "const double along =", "const double along = 0 *"),
    "a tile short": ("surfels.cu", "half_x) + 0.01) / TILE + 1, columns", "half_x) + 0.01) / TILE, columns"),
    "only the low-pass's box": ("surfels.cu", "max(bounds.y + low_pass, tight.y + half_y)", "(bounds.y + low_pass)"),
    "a row of tiles as wide as the image": ("binning.cu", "(box.top + k / across)", "(box.top + k / columns)"),
    "colors from another place": ("projection.cu", "* stride + place + c", "* stride + 8 + c"),
}  # fmt: skip


def scene(options: dict[str, Any], columns: int) -> None:
    """Some Gaussians beside the image, and more than 32 on a tile."""
    inputs = faint(400, 0.3, spread=1.5, size=(0.02, 0.3), precomputed="bg" in options)
    if "bg" in options:
        inputs["colors_precomp"] = rand(400, 19, seed=5)
    compare(look_at(60, 45, **options), inputs, columns=columns)


def surfels() -> None:
    """Steep and large ones among small ones, some before the near plane, layers of them, and one that a warp lists."""
    inputs = discs(160, spread=1.5, size=(0.005, 0.5))
    inputs["scales"][0] = 4.0
    inputs["means3D"][:8] += (look_at(8, 8).campos - inputs["means3D"][:8]) * 0.9
    inputs["rotations"] = inputs["rotations"] * (0.5 + rand(160, 1, seed=2))
    compare_surfels(look_at(150, 130), inputs)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", [*WRONG, *WRONG_SURFELS])
def test_what_is_wrong_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernels(changed(*(WRONG | WRONG_SURFELS)[name][:3]), monkeypatch)
    with pytest.raises((AssertionError, KernelError)):
        if name in WRONG:
            scene(*WRONG[name][3:])
        else:
            surfels()


@pytest.mark.slow
def test_what_is_right_is_not(emulated: None) -> None:
    """The same scenes with the kernels as they are."""
    for _, _, _, options, columns in WRONG.values():
        scene(options, columns)
    surfels()
