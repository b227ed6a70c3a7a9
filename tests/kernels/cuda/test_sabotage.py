"""Each wrong kernel here differs from the right one by an expression, and the comparison with the PyTorch kernels sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ..gaussian_cases import faint
from ..scenes import discs, look_at, rand
from . import test_gsplat
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
    "what is still ahead": ("blending.cu", "passing.ahead * reciprocal(1 - alpha)", "passing.ahead", {}, 3),
    "the first half of the Gaussians twice": ("blending.cu", "near[place + k]", "near[k]", {}, 3),
    "nothing enters": ("travel.h", "place == 0 ? entering : handed_on", "handed_on", {}, 3),
    "a moment of another axis": ("travel.h", "xy += e * dx * dy", "xy += e * dx * dx", {}, 3),
    "a statistic in pixels": ("projection.cu", "half_x = (real)0.5 * width,", "half_x = 1,", {}, 3),
    "half of an absolute gradient": ("projection.cu", "? absolute_x + absolute_y :", "? absolute_x :", MIP, 3),
    "centers without colors": ("projection.cu", "plus(to_means[i], times(inverse", "plus(to_means[i], times(0 * inverse", {}, 3),
}  # fmt: skip

# of surfels.cu and what it stands on: (file, right, wrong)
WRONG_SURFELS: dict[str, tuple[str, str, str]] = {
    "an anchor a pixel off": ("discs.h", "it.dx = (real)x - s.anchor_x;", "it.dx = (real)x - s.anchor_x - 1;"),
    "the low-pass decides everywhere": ("discs.h", "<= low_pass * it.z * it.z;", "< 0;"),
    "a wider low-pass": ("discs.h", "const real low_pass = 2 *", "const real low_pass = 1 *"),
    "no near plane": ("surfels.cu", "return depth >= NEAR &&", "return"),
    "the median behind the half": ("surfels.cu", "left > (real)0.5", "left > (real)0.4"),
    "distortion without those in front": ("surfels.cu", "(m * m * (1 - left) + second_moment", "(m * m * (1 - left)"),
    "distortion's slope in weight": ("surfels.cu", "by_alpha + by_distortion * moments", "by_alpha + 0 * moments"),
    "distortion's slope in depth": ("surfels.cu", "(g.m1 + 2 * g.m2 * m)", "(g.m1 + g.m2 * m)"),
    "no gradient through the median": ("surfels.cu", "by_depth += g.by_median;", ";"),
    "the background's part of alpha": ("surfels.cu", "pull.m0 -= pull.gradient[c] * background[c];", ";"),
    "the low-pass moves the disc": ("surfels.cu", "} else {  // the ray's", "} if (true) {  // the ray's"),
    "the anchor's part": ("surfels.cu", "clip.x - meeting.anchor_x * clip.z", "clip.x"),
    "the center does not move": ("surfels.cu", "by_x = sums[row + 10],", "by_x = 0 * sums[row + 10],"),
    "normals all one way": ("surfels.cu", "sign = disc.turned ? -1 : 1", "sign = 1"),
    "the quaternion's length": ("discs.h", "const number along =", "const number along = 0 *"),
    "a tile short": ("surfels.cu", "(to_x + (real)0.01) / TILE + 1, columns", "(to_x + (real)0.01) / TILE, columns"),
    "only the low-pass's box": ("surfels.cu", "max(bounds.y + low_pass, tight.y + half_y)", "(bounds.y + low_pass)"),
    "a row of tiles as wide as the image": ("binning.cu", "(box.top + k / across)", "(box.top + k / columns)"),
    "colors from another place": ("projection.cu", "* stride + place + c", "* stride + 8 + c"),
}  # fmt: skip

DOUBLE = torch.float64
# of gsplat's: what sees it, and (file, right, wrong)
SCENES: dict[str, Callable[[], None]] = {
    "shapes": lambda: test_gsplat.test_covariances((True, True), False, DOUBLE, None),
    "harmonics": lambda: test_gsplat.test_harmonics(4, True, DOUBLE, None),
    "relocation": lambda: test_gsplat.test_relocation(DOUBLE, None),
    "adam": lambda: test_gsplat.test_adam(True, DOUBLE, None),
    "projection": lambda: test_gsplat.test_projection("batches", True, DOUBLE, None),
    "needles": lambda: test_gsplat.test_projection("pinhole", True, torch.float32, None),
    "covariances": lambda: test_gsplat.test_projection("covariances", True, DOUBLE, None),
    "packed": lambda: test_gsplat.test_packed_projection("batches", DOUBLE, None),
    "tiles": lambda: test_gsplat.test_tiles(16, True, None),
    "pixels": lambda: test_gsplat.pixels(DOUBLE, channels=20, background=True, masks=True, count=300),
    "absolute": lambda: test_gsplat.pixels(DOUBLE, absolute=True),
    "full": lambda: test_gsplat.pixels(torch.float32, count=600, background=True, slack=3.0),
    "faint": lambda: test_gsplat.pixels(DOUBLE, count=600, faint=True),
    "indices": lambda: test_gsplat.test_indices((0, 1), DOUBLE, None),
    "discs": lambda: test_gsplat.test_projection_of_surfels(2, False, DOUBLE, None),
    "surfels": lambda: test_gsplat.surfels(DOUBLE, channels=6, background=True, absolute=False, count=300),
}
SHAPES, POINTS, FACE = "gsplat_shapes.h", "gsplat_points.cu", "gsplat.h"
PROJECTION, PIXELS, DISCS = "gsplat_projection.cu", "gsplat_pixels.cu", "gsplat_surfels.cu"
WRONG_GSPLAT: dict[str, tuple[str, str, str, str]] = {
    "half of a symmetric gradient": ("shapes", SHAPES, "by[at + 1] + by[at + 3]", "by[at + 1]"),
    "a precision's length": ("shapes", POINTS, "{-by_inverses.x * inverses.x * inverses.x,", "{-by_inverses.x * inverses.x,"),
    "degree 4": ("harmonics", POINTS, "B20 * (35 * zz * zz", "B20 * (34 * zz * zz"),
    "degree 4, slope": ("harmonics", POINTS, "B20 * 20 * z", "B20 * 10 * z"),
    "rows that are masked": ("harmonics", POINTS, "(masks && !masks[i])) return;", "false) return;"),
    "a sum that does not alternate": ("relocation", POINTS, "power *= -part", "power *= part"),
    "epsilon in the root": ("adam", POINTS, "(sqrt(square) + epsilon)", "sqrt(square + epsilon)"),
    "rows that are not valid": ("adam", POINTS, "|| (valid && !valid[i / width])", ""),
    "a wider margin": ("projection", PROJECTION, "MARGIN = (real)0.15", "MARGIN = (real)0.2"),
    "edges that move": ("projection", PROJECTION, "it.free_x = it.edge_x == x", "it.free_x = true"),
    "a box as large as it may be": ("projection", PROJECTION, "reach = min(reach,", "reach = max(reach,"),
    "compensated opacity": ("projection", PROJECTION, "(compensated ? compensation : (real)1)", "(real)1"),
    "the first batch's Gaussians": ("projection", PROJECTION, "image / cameras * count + which % count", "which % count"),
    "the blurred determinant's part": ("projection", PROJECTION, "compensation * compensation * A", "0 * A"),
    "depth moves nothing": ("projection", PROJECTION, "by_depths[entry]};", "0};"),
    "one camera for a warp": ("projection", FACE, "same = __all_sync(FULL_WARP, !has || image == first)", "same = true"),
    "a camera that only turns": ("projection", PROJECTION, "times(k == 0 ? by_t.x :", "times(k == 0 ? 0 :"),
    "half of a minor": ("needles", PROJECTION, "v[other] - (double)u[other] * v[k])", "v[other])"),
    "a covariance's determinant": ("covariances", PROJECTION, "by_sharp * 2 * dot(s0, n)", "by_sharp * dot(s0, n)"),
    "one that was not picked": ("packed", PROJECTION, "picked ? (int)picked[entry] : entry", "entry"),
    "gradients of what was not picked": ("packed", PROJECTION, "+ (int)picked[row] % count", "+ row % count"),
    "all images at the top": ("tiles", PROJECTION, "(int)images[entry] :", "0 :"),
    "an id that overlaps": ("tiles", PROJECTION, "<< bits |", "<< (bits - 1) |"),
    "a depth with a sign": ("tiles", PROJECTION, "(unsigned)depths", "depths"),
    "no cap": ("absolute", PIXELS, "uncapped > CAP ? (real)0 : e", "e"),
    "stops later": ("full", PIXELS, "if (after <= STOP)", "if (after <= STOP / 2)"),
    "corners of pixels": ("pixels", PIXELS, "column_of(number) + (real)0.5", "column_of(number) + (real)0"),
    "the first image's background": ("pixels", PIXELS, "left * backgrounds[(long long)image * channels +", "left * backgrounds["),
    "masked tiles": ("pixels", PIXELS, "|| tile.masked", ""),
    "gradients of masked tiles": ("pixels", PIXELS, "if (tile.masked) return;", ";"),
    "every launch the first channels": ("pixels", PIXELS, "* channels + from + c] : (real)0", "* channels + c] : (real)0"),
    "alphas in single precision": ("pixels", PIXELS, "1 - (double)left", "(float)(1 - left)"),
    "nothing behind": ("faint", PIXELS, "passing.behind * inverse", "0 * inverse"),
    "lanes that hand on to themselves": ("faint", "travel.h", "(threadIdx.x + 1) % WARP", "threadIdx.x % WARP"),
    "without the first turn": ("faint", PIXELS, "first >= tile.begin; first -= AREA", "first > tile.begin; first -= AREA"),
    "gradients that cancel": ("absolute", "travel.h", "abs_x += fabs(", "abs_x += ("),
    "one place for all of a pixel": ("indices", PIXELS, "to_pixels[place + taken]", "to_pixels[place]"),
    "numbers through all images": ("indices", PIXELS, "which % count", "which"),
    "more than one turn": ("indices", PIXELS, "end_turn * turn, (long long)", "(end_turn + 1) * turn, (long long)"),
    "normals all one way": ("discs", DISCS, "? 1 : -1", "? 1 : 1"),
    "the center does not move": ("discs", DISCS, "by_u = plus(by_u, times(by.x, f));", ";"),
    "a pose without sides": ("discs", DISCS, "times(by_view[k].z, sides[k])", "times(0, sides[k])"),
    "a center half a pixel off": ("surfels", DISCS, "centers[i].x - 0.5 - meeting", "centers[i].x - meeting"),
    "no cap of surfels": ("surfels", DISCS, "if (it.uncapped > CAP) e = 0;", ";"),
    "distortion without those in front": ("surfels", DISCS, "(d * (1 - left) - depth)", "(d * (1 - left))"),
    "distortion's slope in weight": ("surfels", DISCS, "+ g.whole - d * g.alpha)", ")"),
    "distortion's slope in depth": ("surfels", DISCS, "(2 * (1 - passing.left) + weight - g.alpha)", "0"),
    "the background's depth": ("surfels", DISCS, "- beyond - middle", "- 0 * beyond - middle"),
    "a median behind the half": ("surfels", DISCS, "left > (real)0.5", "left > (real)0.4"),
    "no gradient through the median": ("surfels", DISCS, "SUMS + 17, pull.by_median", "SUMS + 17, (real)0"),
    "a low-pass that moves the disc": ("surfels", DISCS, "} else {\n  ", "} if (true) {\n  "),
    "half a pixel of the transform": ("surfels", DISCS, "(real)(meeting.anchor_x + 0.5)", "(real)meeting.anchor_x"),
    "a statistic without depth": ("surfels", DISCS, "{by_u.z * w.z,", "{by_u.z,"),
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
@needs_compiler
@pytest.mark.parametrize("name", WRONG_GSPLAT)
def test_what_is_wrong_of_gsplat_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen_by, *change = WRONG_GSPLAT[name]
    use_kernels(changed(*change), monkeypatch)
    with pytest.raises((AssertionError, KernelError)):
        SCENES[seen_by]()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_what_is_right_of_gsplat_is_not(name: str, emulated: None) -> None:
    SCENES[name]()


@pytest.mark.slow
def test_what_is_right_is_not(emulated: None) -> None:
    """The same scenes with the kernels as they are."""
    for _, _, _, options, columns in WRONG.values():
        scene(options, columns)
    surfels()
