"""Every index at its edge: kernels run on the last blocks of the largest launch, with windows on arrays too long to have.

What comes out must be what the same data give at the beginning. An index that is computed with 32 bits where it needs 64 falls
outside the window and is reported: each test shows that too, with one such index put in.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.kernels import knn_cuda, rasterizer_cuda

from ..scenes import cloud, look_at, rand
from .emulator import SOURCES, Emulated, KernelError, Window, needs_compiler, text_with

pytestmark = [pytest.mark.slow, needs_compiler]

MOST = 2**31 - 1  # Gaussians
PAIRS = rasterizer_cuda._MOST_PAIRS
COUNT = 255  # of the last blocks: 2^31 - 256 is where a block begins
FRAME = rasterizer_cuda.frame_of(look_at(70, 50), torch.zeros(1, dtype=torch.float64))
NUMBERS = [*FRAME.projection(), FRAME.degree, 16, 0.01, 0.0]
"""Of `project`, behind the number of Gaussians."""


def new(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


def whole(*shape: int) -> Tensor:
    return new(*shape, dtype=torch.int32)


class Launch:
    """A launch whose last COUNT elements are given, or, near, one of those alone."""

    def __init__(self, program: Emulated, far: bool) -> None:
        self.program, self.far = program, far
        self.count, self.first = (MOST, MOST - COUNT) if far else (COUNT, 0)
        self.begin = PAIRS - COUNT if far else 0
        """Of the list of pairs."""

    def place(self, tensor: Tensor | None) -> Window | None:
        """A tensor whose rows are those of a longer one from `first` on."""
        if tensor is None:
            return None
        return Window(tensor, self.first * (tensor.stride(0) if tensor.dim() > 1 else 1))

    def rows(self, kernel: str, threads: int, arguments: Sequence[Any]) -> None:
        """A thread a row."""
        grid = ((self.count + threads - 1) // threads,)
        self.program.launch(kernel, grid, threads, arguments, first_block=self.first // threads)

    def tile(self, kernel: str, arguments: Sequence[Any]) -> None:
        self.program.launch(kernel, (1, 1), 256, arguments)

    def pairs(self, order: Tensor) -> list[Any]:
        """One tile's list of all Gaussians at the end of the longest list: ranges and numbers."""
        ranges = torch.tensor([[self.begin, self.begin + COUNT]], dtype=torch.int32)
        return [ranges, Window(order + self.first, self.begin)]


Work = Callable[[Launch], Sequence[Tensor]]


def hold(work: Work, file: str, *narrow: str, **defines: object) -> None:
    """Far is as near; and with one of these indices of 32 bits it is outside."""
    program = Emulated(text_with(file, file), defines, torch.float64)
    for early, late in zip(work(Launch(program, False)), work(Launch(program, True)), strict=True):
        assert early.any()
        torch.testing.assert_close(late, early)
    for index in narrow:
        source = text_with(file, file)
        for header in ("harmonics.h", "shapes.h"):
            text = (SOURCES / header).read_text().replace("#pragma once", "")
            source = source.replace(f'#include "{header}"', text)
        assert index in source
        source = source.replace(index, index.replace("(long long)", "(int)"))
        with pytest.raises(KernelError, match="outside"):
            work(Launch(Emulated(source, defines, torch.float64), True))


def shaped() -> list[Tensor]:
    inputs = cloud(COUNT)
    return [inputs[name] for name in ("means3D", "opacities", "scales", "rotations", "shs")]


@pytest.mark.parametrize("given", ["scales", "covariance"])
def test_projection(given: str) -> None:
    means, opacities, scales, rotations, shs = shaped()
    covariances, colors = rand(COUNT, 6), rand(COUNT, 3)
    radii, sums = torch.ones(COUNT, dtype=torch.int32), rand(COUNT, 14)
    by_scales = given == "scales"
    shape, color, own = [None, None, covariances], [None, colors], [new(COUNT, 6), new(COUNT, 3)]
    if by_scales:
        shape, color, own = [scales, rotations, None], [shs, None], [new(COUNT, 3), new(COUNT, 4)]

    def forward(at: Launch) -> Sequence[Tensor]:
        made = [new(COUNT, 8), new(COUNT, 6), new(COUNT), whole(COUNT), whole(COUNT)]
        rest = [FRAME.camera, at.count, *NUMBERS, *map(at.place, made)]
        at.rows("project", 256, [*map(at.place, [means, opacities, *shape, *color]), *rest])
        return made

    def backward(at: Launch) -> Sequence[Tensor]:
        made = [new(COUNT, 3), new(COUNT, 4), new(COUNT)]
        made += [torch.zeros_like(item) for item in own]
        nothing = [None, None]
        outputs = [*made, *nothing] if by_scales else [*made[:3], *nothing, *made[3:]]
        rest = [FRAME.camera, at.place(radii), at.place(sums), at.count, *FRAME.projection(), 3, 0, 4]
        inputs = [*map(at.place, [means, opacities, *shape]), *rest]
        at.rows("project_backward", 128, [*inputs, *map(at.place, outputs)])
        return made

    def harmonics(at: Launch) -> Sequence[Tensor]:
        made = [new(COUNT, 3), new(COUNT, 16, 3)]
        rest = [FRAME.camera, at.place(radii), at.place(sums), at.count, 3, 16, 14, 8, *map(at.place, made)]
        at.rows("harmonics_backward", 256, [at.place(means), at.place(shs), *rest])
        return made

    index = "((long long)i * bands + k) * 3" if by_scales else "(long long)i * 6"
    hold(forward, "projection.cu", index)
    hold(backward, "projection.cu", "(long long)i * (8 + channels + extras)")
    hold(harmonics, "projection.cu", "(long long)i * stride")


@pytest.mark.parametrize("given", ["scales", "transforms"])
def test_projection_of_surfels(given: str) -> None:
    means, opacities, scales, rotations, shs = shaped()
    scales, colors = scales[:, :2].contiguous(), rand(COUNT, 3)
    transforms = 2 * rand(COUNT, 9) - 1 + torch.tensor([9, 0, 90, 0, 9, 90, 0, 0, 3.0])
    radii, sums = torch.ones(COUNT, dtype=torch.int32), rand(COUNT, 22)
    by_scales = given == "scales"
    shape, color, own = [None, None, transforms], [None, colors], [new(COUNT, 9), new(COUNT, 3)]
    if by_scales:
        shape, color, own = [scales, rotations, None], [shs, None], [new(COUNT, 2), new(COUNT, 4)]

    def forward(at: Launch) -> Sequence[Tensor]:
        made = [new(COUNT, 16), new(COUNT, 6), new(COUNT), whole(COUNT), whole(COUNT, 4), whole(COUNT)]
        rest = [FRAME.camera, at.count, 70, 50, 1.0, 3, 16, 3, *map(at.place, made)]
        at.rows("project_surfels", 128, [*map(at.place, [means, opacities, *shape, *color]), *rest])
        return made

    def backward(at: Launch) -> Sequence[Tensor]:
        by_means, made = new(COUNT, 3), [new(COUNT, 2), new(COUNT)]
        made += [torch.zeros_like(item) for item in own]
        nothing = [None, None]
        outputs = [*made, *nothing] if by_scales else [*made[:2], *nothing, *made[2:]]
        rest = [FRAME.camera, at.place(radii), at.place(sums), at.count, 70, 50, 1.0, 3, 2]
        inputs = [*map(at.place, [means, *shape]), *rest]
        at.rows("project_surfels_backward", 128, [*inputs, *map(at.place, [by_means, *outputs])])
        return [*[by_means] * by_scales, *made]

    index = "((long long)i * bands + k) * 3" if by_scales else "(long long)i * 9"
    hold(forward, "surfels.cu", index)
    hold(backward, "surfels.cu", "(long long)i * (SUMS + channels)")


def test_blending_of_surfels() -> None:
    means, opacities, scales, rotations, shs = shaped()
    tables = [new(COUNT, 16), new(COUNT, 6), new(COUNT)]
    given = [means, opacities, scales[:, :2].contiguous(), rotations, None, shs, None, FRAME.camera, COUNT]
    made = [*tables, whole(COUNT), whole(COUNT, 4), whole(COUNT)]
    program = Emulated(text_with("surfels.cu", "surfels.cu"), {}, torch.float64)
    program.launch("project_surfels", (2,), 128, [*given, 70, 50, 1.0, 3, 16, 3, *made])
    order = tables[2].argsort().int()

    def work(at: Launch) -> Sequence[Tensor]:
        lists = [*at.pairs(order), *map(at.place, tables), torch.ones(3, dtype=torch.float64)]
        image, maps, moments, sums = new(3, 16, 16), new(7, 16, 16), new(2, 16, 16), new(COUNT, 22)
        lasts, medians = whole(16, 16), whole(16, 16)
        at.tile("blend_surfels", [*lists, 16, 16, image, maps, moments, lasts, medians])
        pulled = [image, maps, moments, torch.ones_like(image), torch.ones_like(maps), lasts, medians]
        at.tile("blend_surfels_backward", [*lists, *pulled, 16, 16, at.place(sums)])
        return image, maps, lasts, medians, sums

    hold(work, "surfels.cu", "(long long)which * FEATURES", "(long long)which * (SUMS + COLORS)")


def arranged() -> tuple[Tensor, Tensor]:
    """Splats and tile counts of the scene."""
    means, opacities, scales, rotations, shs = shaped()
    splats, counts = new(COUNT, 8), whole(COUNT)
    given = [means, opacities, scales, rotations, None, shs, None, FRAME.camera, COUNT, *NUMBERS]
    program = Emulated(text_with("projection.cu", "projection.cu"), {}, torch.float64)
    program.launch("project", (1,), 256, [*given, splats, new(COUNT, 6), new(COUNT), whole(COUNT), counts])
    return splats, counts


def test_binning() -> None:
    splats, counts = arranged()
    pairs = int(counts.sum())
    keys = torch.arange(256, dtype=torch.int32) // 30

    def listing(at: Launch) -> Sequence[Tensor]:
        until = PAIRS - pairs if at.far else 0
        tiles, gaussians = whole(pairs), whole(pairs)
        given = [splats, torch.arange(COUNT) + at.first, counts.cumsum(0) + until, counts]
        made = [Window(tiles, until), Window(gaussians, until)]
        at.rows("list_pairs", 256, [*map(at.place, given), at.count, 70, 50, 0.01, 0.0, *made])
        return tiles, gaussians - at.first

    def ranging(at: Launch) -> Sequence[Tensor]:
        count, first = (PAIRS, PAIRS - 256) if at.far else (256, 0)
        ranges = whole(10, 2)
        held = torch.cat([whole(int(at.far)) + 9, keys])  # a thread reads its neighbors
        arguments = [Window(held, max(first - 1, 0)), count, 10, ranges]
        at.program.launch("find_ranges", (count // 256,), 256, arguments, first_block=first // 256)
        return [ranges[:9] - first]

    hold(listing, "binning.cu", KEY="int")
    hold(ranging, "binning.cu", KEY="int")
    text = text_with("binning.cu", "binning.cu", "tiles[at] =", "tiles[(int)at + 600] =")
    with pytest.raises(KernelError, match="outside"):
        listing(Launch(Emulated(text, {"KEY": "int"}, torch.float64), True))


@pytest.mark.parametrize("channels", [3, 9])
def test_blending(channels: int) -> None:
    splats, _ = arranged()
    features, order = rand(COUNT, channels + 3), splats[:, 6].argsort().int()

    def work(at: Launch) -> Sequence[Tensor]:
        lists = [*at.pairs(order), at.place(splats), at.place(features)]
        image, extras, lasts = new(channels, 16, 16), new(3, 16, 16), whole(16, 16)
        background = torch.ones(channels, dtype=torch.float64)
        at.tile("blend", [*lists, background, None, channels, 0, 16, 16, image, extras, lasts, None])
        sums, ones = new(COUNT, 8 + channels + 3), [torch.ones_like(image), torch.ones_like(extras)]
        numbers = [channels, 0, 8 + channels + 3, 16, 16]
        at.tile("blend_backward", [*lists, None, image, extras, *ones, lasts, *numbers, at.place(sums)])
        return image, extras, lasts, sums

    part = {"COLORS": min(channels, 5), "EXTRAS": 3, "PART": int(channels > 5)}
    hold(work, "blending.cu", "(long long)which * (channels + 3)", "(long long)which * stride", **part)


def test_contributions() -> None:
    splats, _ = arranged()
    order = splats[:, 6].argsort().int()

    def work(at: Launch) -> Sequence[Tensor]:
        made = [whole(COUNT, 3), new(COUNT, 4)]
        at.tile("contribute", [*at.pairs(order), at.place(splats), None, 16, 16, *map(at.place, made)])
        return made

    indices = [*(f"(long long)numbers[k] * {columns}" for columns in (3, 4)), "(long long)strongest * 3"]
    hold(work, "contributions.cu", *indices)


def test_ssim() -> None:
    """The last image of a launch: 65,535 of 200 x 200 are more pixels than 32 bits count."""
    first, second, blocks = rand(200, 200), rand(200, 200, seed=1), 7 * 13

    def work(at: Launch) -> Sequence[Tensor]:
        before = 65534 if at.far else 0
        sums, slopes, gradient = new(blocks), new(3, 200, 200), new(200, 200)
        pixels = [Window(one, before * 40000) for one in (first, second)]
        held = Window(slopes, 3 * before * 40000)
        grid, turn = (7, 13, before + 1), before * blocks
        arguments = [*pixels, 200, 200, 0, 1.0, Window(sums, turn), held]
        at.program.launch("ssim_forward", grid, 256, arguments, first_block=turn)
        upstream = torch.ones(1, dtype=torch.float64)
        arguments = [*pixels, held, upstream, 200, 200, Window(gradient, before * 40000)]
        at.program.launch("ssim_backward", grid, 256, arguments, first_block=turn)
        return sums, slopes, gradient

    hold(work, "ssim.cu", "(long long)blockIdx.z * height * width")


def test_knn_tree() -> None:
    """Codes, leaves and nodes; the search reads boxes from all over the tree, and no window holds them."""
    points, bounds = rand(1536, 3), new(6) + torch.tensor([0.0, 0, 0, 1, 1, 1])

    def work(at: Launch) -> Sequence[Tensor]:
        count = knn_cuda._MOST_POINTS if at.far else 1536
        first, leaves = count - 1536, count // 8
        codes, boxes, nodes = new(1536, dtype=torch.int64), new(192, 6), new(192, 6)
        given, made = Window(points, 3 * first), Window(boxes, 6 * (leaves - 192))
        held = torch.cat([points, points + 1], dim=1)
        arguments = [given, bounds, count, Window(codes, first)]
        at.program.launch("knn_codes", (count // 256,), 256, arguments, first_block=first // 256)
        grid, skipped = ((leaves + 255) // 256,), leaves // 256
        at.program.launch("knn_leaves", grid, 256, [given, count, leaves, made], first_block=skipped)
        arguments = [Window(held, 6 * first), count, leaves, Window(nodes, 6 * (leaves - 192))]
        at.program.launch("knn_nodes", grid, 256, arguments, first_block=skipped)
        return codes, boxes, nodes

    hold(work, "knn.cu")
