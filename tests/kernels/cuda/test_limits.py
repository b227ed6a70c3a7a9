"""Every index at its edge: kernels run on the last blocks of the largest launch, with windows on arrays too long to have.

What comes out must be what the same data give at the beginning. An index that is computed with 32 bits where it needs 64 falls
outside the window and is reported; that it is, the second half of each test shows, where one such index is put in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from splatfix.kernels import knn_cuda, rasterizer_cuda
from tests.kernels.cuda.emulator import COMPILER, SOURCES, Emulated, KernelError, Window
from tests.kernels.rasterizer_compare import cloud, look_at

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")]

MOST = 2**31 - 1  # Gaussians
COUNT = 255  # of the last blocks: 2^31 - 256 is where a block begins
Place = Callable[[Tensor], Any]


def kernels(file: str, wrong: tuple[str, str] = ("", ""), **defines: object) -> Emulated:
    text = (SOURCES / file).read_text()
    harmonics = (SOURCES / "harmonics.h").read_text().replace("#pragma once", "")
    text = text.replace('#include "harmonics.h"', harmonics)
    assert wrong[0] in text
    return Emulated(text.replace(*wrong) if wrong[0] else text, defines, torch.float64)


def at(start: int) -> Place:
    """A tensor whose rows are those of a longer one from `start` on."""
    return lambda tensor: Window(tensor, start * (tensor.stride(0) if tensor.dim() > 1 else 1))


def both(
    program: Emulated,
    wrong: Emulated | None,
    kernel: str,
    threads: int,
    most: int,
    arguments: Callable[..., Any],
) -> None:
    """`arguments(count, first, place)`: of a launch with `count` elements, of which those from `first` on are given."""
    start = most - COUNT
    results = []
    for count, first in ((COUNT, 0), (most, start)):
        given, made = arguments(count, first, at(first))
        grid = ((count + threads - 1) // threads,)
        program.launch(kernel, grid, (threads,), given, first_block=first // threads)
        results.append(made)
        if wrong is not None and first:
            with pytest.raises(KernelError, match="outside"):
                given = arguments(count, first, at(first))[0]
                wrong.launch(kernel, grid, (threads,), given, first_block=first // threads)
    for early, late in zip(*results, strict=True):
        assert early.abs().sum() > 0
        torch.testing.assert_close(late, early)


def frame() -> Any:
    settings = look_at(70, 50)
    return rasterizer_cuda.frame_of(settings, torch.zeros(1, dtype=torch.float64))


def shaped() -> list[Tensor]:
    inputs = cloud(COUNT)
    return [inputs[name] for name in ("means3D", "opacities", "scales", "rotations", "shs")]


def new(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


@pytest.mark.parametrize("given", ["scales", "covariance"])
def test_projection(given: str) -> None:
    view, (means, opacities, scales, rotations, shs) = frame(), shaped()
    covariances, colors = torch.rand(COUNT, 6, dtype=torch.float64), torch.rand(COUNT, 3, dtype=torch.float64)

    def forward(count: int, first: int, place: Place) -> Any:
        made = [new(COUNT, 8), new(COUNT, 6), new(COUNT), *(new(COUNT, dtype=torch.int32) for _ in range(2))]
        if given == "scales":
            inputs = [*map(place, (scales, rotations)), None, place(shs), None]
        else:
            inputs = [None, None, place(covariances), None, place(colors)]
        numbers = [view.camera, count, *view.projection(), view.degree, 16, 0.01, 0.0]
        return [place(means), place(opacities), *inputs, *numbers, *map(place, made)], made

    wrong = "(long long)i * 6" if given == "covariance" else "((long long)i * bands + k) * 3"
    both(
        kernels("projection.cu"),
        kernels("projection.cu", (wrong, wrong.replace("(long long)", ""))),
        "project",
        256,
        MOST,
        forward,
    )
    radii, sums = torch.ones(COUNT, dtype=torch.int32), torch.rand(COUNT, 14, dtype=torch.float64)

    def backward(count: int, first: int, place: Place) -> Any:
        made = [new(COUNT, 3), new(COUNT), new(COUNT, 3), new(COUNT, 4)]
        inputs, outputs = [*map(place, (scales, rotations)), None], [*map(place, made), None, None]
        if given == "covariance":
            made = [new(COUNT, 3), new(COUNT), new(COUNT, 6), new(COUNT, 3)]
            inputs, outputs = (
                [None, None, place(covariances)],
                [*map(place, made[:2]), None, None, *map(place, made[2:])],
            )
        numbers = [view.camera, place(radii), place(sums), count, *view.projection(), 3, 0]
        return [place(means), place(opacities), *inputs, *numbers, *outputs], made

    wrong = "(long long)i * (8 + channels + extras)"
    both(
        kernels("projection.cu"),
        kernels("projection.cu", (wrong, wrong[11:])),
        "project_backward",
        128,
        MOST,
        backward,
    )

    def harmonics(count: int, first: int, place: Place) -> Any:
        made = [new(COUNT, 3), new(COUNT, 16, 3)]
        numbers = [view.camera, place(radii), place(sums), count, 3, 16, 14, 8]
        return [place(means), place(shs), *numbers, *map(place, made)], made

    wrong = "(long long)i * stride"
    both(
        kernels("projection.cu"),
        kernels("projection.cu", (wrong, wrong[11:])),
        "harmonics_backward",
        256,
        MOST,
        harmonics,
    )


@pytest.mark.parametrize("given", ["scales", "transforms"])
def test_projection_of_surfels(given: str) -> None:
    view, (means, opacities, scales, rotations, shs) = frame(), shaped()
    scales, colors = scales[:, :2].contiguous(), torch.rand(COUNT, 3, dtype=torch.float64)
    transforms = torch.randn(COUNT, 9, dtype=torch.float64) + torch.tensor([9, 0, 90, 0, 9, 90, 0, 0, 3.0])

    def forward(count: int, first: int, place: Place) -> Any:
        integers = [
            new(COUNT, dtype=torch.int32),
            new(COUNT, 4, dtype=torch.int32),
            new(COUNT, dtype=torch.int32),
        ]
        made = [new(COUNT, 16), new(COUNT, 6), new(COUNT), *integers]
        inputs = [*map(place, (scales, rotations)), None, place(shs), None]
        if given == "transforms":
            inputs = [None, None, place(transforms), None, place(colors)]
        numbers = [view.camera, count, 70, 50, 1.0, 3, 16, 3]
        return [place(means), place(opacities), *inputs, *numbers, *map(place, made)], made

    at_fault = "(long long)i * 9" if given == "transforms" else "((long long)i * bands + k) * 3"
    wrong = kernels("surfels.cu", (at_fault, at_fault.replace("(long long)", "")))
    both(kernels("surfels.cu"), wrong, "project_surfels", 128, MOST, forward)
    radii, sums = torch.ones(COUNT, dtype=torch.int32), torch.rand(COUNT, 22, dtype=torch.float64)

    def backward(count: int, first: int, place: Place) -> Any:
        made = [new(COUNT, 3), new(COUNT), new(COUNT, 2), new(COUNT, 4), new(COUNT, 2)]
        inputs = [*map(place, (scales, rotations)), None]
        outputs = [*map(place, made[:4]), None, None, place(made[4])]
        if given == "transforms":
            made = [new(COUNT), new(COUNT, 9), new(COUNT, 3), new(COUNT, 2)]
            inputs = [None, None, place(transforms)]
            outputs = [place(new(COUNT, 3)), place(made[0]), None, None, *map(place, made[1:])]
        numbers = [view.camera, place(radii), place(sums), count, 70, 50, 1.0, 3]
        return [place(means), *inputs, *numbers, *outputs], made

    wrong = kernels("surfels.cu", ("(long long)i * (SUMS + channels)", "i * (SUMS + channels)"))
    both(kernels("surfels.cu"), wrong, "project_surfels_backward", 128, MOST, backward)


def test_blending_of_surfels() -> None:
    view, (means, opacities, scales, rotations, shs) = frame(), shaped()
    surfels, features, depths = new(COUNT, 16), new(COUNT, 6), new(COUNT)
    rest = [new(COUNT, dtype=torch.int32), new(COUNT, 4, dtype=torch.int32), new(COUNT, dtype=torch.int32)]
    given = [means, opacities, scales[:, :2].contiguous(), rotations, None, shs, None, view.camera, COUNT]
    program = kernels("surfels.cu")
    made = [surfels, features, depths, *rest]
    program.launch("project_surfels", (2,), (128,), [*given, 70, 50, 1.0, 3, 16, 3, *made])
    order, most, start = depths.argsort().int(), rasterizer_cuda._MOST_PAIRS, MOST - COUNT

    def launch(program: Emulated, far: bool) -> Sequence[Tensor]:
        begin, where = most - COUNT if far else 0, at(start if far else 0)
        ranges = torch.tensor([[begin, begin + COUNT]], dtype=torch.int32)
        lists = [
            ranges,
            Window(order + start if far else order, begin),
            *map(where, (surfels, features, depths)),
        ]
        image, maps, moments, sums = new(3, 16, 16), new(7, 16, 16), new(2, 16, 16), new(COUNT, 22)
        lasts, medians = new(16, 16, dtype=torch.int32), new(16, 16, dtype=torch.int32)
        lists.append(torch.ones(3, dtype=torch.float64))
        program.launch(
            "blend_surfels", (1, 1), (256,), [*lists, 16, 16, image, maps, moments, lasts, medians]
        )
        pulled = [image, maps, moments, torch.ones_like(image), torch.ones_like(maps), lasts, medians]
        program.launch("blend_surfels_backward", (1, 1), (256,), [*lists, *pulled, 16, 16, where(sums)])
        return image, maps, lasts, medians, sums

    for early, late in zip(launch(program, False), launch(program, True), strict=True):
        assert early.any()
        torch.testing.assert_close(late, early)
    for wrong in ("(long long)which * FEATURES", "(long long)which * (SUMS + COLORS)"):
        with pytest.raises(KernelError, match="outside"):
            launch(kernels("surfels.cu", (wrong, wrong[11:])), True)


def arranged() -> tuple[Tensor, Tensor, Tensor]:
    """Splats, features and tile counts of the scene."""
    view, (means, opacities, scales, rotations, shs) = frame(), shaped()
    splats, features, radii, counts = (
        new(COUNT, 8),
        new(COUNT, 6),
        new(COUNT, dtype=torch.int32),
        new(COUNT, dtype=torch.int32),
    )
    numbers = [view.camera, COUNT, *view.projection(), 3, 16, 0.01, 0.0]
    made = [splats, features, new(COUNT), radii, counts]
    kernels("projection.cu").launch(
        "project", (1,), (256,), [means, opacities, scales, rotations, None, shs, None, *numbers, *made]
    )
    return splats, features, counts


def test_binning() -> None:
    splats, _, counts = arranged()
    pairs = int(counts.sum())

    def listing(count: int, first: int, place: Place) -> Any:
        until = 0 if not first else rasterizer_cuda._MOST_PAIRS - pairs
        made = [new(pairs, dtype=torch.int32), new(pairs, dtype=torch.int32)]
        order, ends = torch.arange(COUNT) + first, counts.cumsum(0) + until
        arguments = [*map(place, (splats, order, ends, counts)), count, 70, 50, 0.01, 0.0]
        return [*arguments, *(Window(one, until) for one in made)], [made[0], made[1]]

    # what it writes are numbers of Gaussians: they differ by where the scene lies
    start = MOST - COUNT
    program, results = kernels("binning.cu", KEY="int"), []
    for count, first in ((COUNT, 0), (MOST, start)):
        arguments, (tiles, gaussians) = listing(count, first, at(first))
        program.launch("list_pairs", ((count + 255) // 256,), (256,), arguments, first_block=first // 256)
        results.append((tiles, gaussians - first))
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True)) and results[0][1].max() > 100
    arguments, _ = listing(MOST, start, at(start))
    with pytest.raises(KernelError, match="outside"):
        kernels("binning.cu", ("long long at = begin", "int at = (int)begin + 600"), KEY="int").launch(
            "list_pairs", ((MOST + 255) // 256,), (256,), arguments, first_block=start // 256
        )

    most, results = rasterizer_cuda._MOST_PAIRS, []
    keys = torch.arange(256, dtype=torch.int32) // 30
    for count, first in ((256, 0), (most, most - 256)):
        ranges = new(10, 2, dtype=torch.int32)
        held = torch.cat(
            [torch.full((int(first > 0),), 9, dtype=torch.int32), keys]
        )  # a thread reads its neighbors
        arguments = [Window(held, max(first - 1, 0)), count, ranges]
        program.launch("find_ranges", (count // 256,), (256,), arguments, first_block=first // 256)
        results.append(ranges[:9] - first)
    assert torch.equal(*results)


@pytest.mark.parametrize("channels", [3, 9])
def test_blending(channels: int) -> None:
    splats, _, _ = arranged()
    features = torch.rand(COUNT, channels + 3, dtype=torch.float64)
    order = splats[:, 6].argsort().int()
    most, start = rasterizer_cuda._MOST_PAIRS, MOST - COUNT
    part = {"COLORS": min(channels, 5), "EXTRAS": 3, "PART": int(channels > 5)}
    program = kernels("blending.cu", **part)
    results = []

    def launch(program: Emulated, far: bool) -> Sequence[Tensor]:
        gaussians = order + start if far else order
        begin = most - COUNT if far else 0
        ranges = torch.tensor([[begin, begin + COUNT]], dtype=torch.int32)
        where = at(start if far else 0)
        lists = [ranges, Window(gaussians, begin), where(splats), where(features)]
        image, extras, lasts = new(channels, 16, 16), new(3, 16, 16), new(16, 16, dtype=torch.int32)
        numbers = [channels, 0, 16, 16]
        program.launch(
            "blend",
            (1, 1),
            (256,),
            [*lists, torch.ones(channels, dtype=torch.float64), None, *numbers, image, extras, lasts],
        )
        sums = new(COUNT, 8 + channels + 3)
        pulled = [
            torch.ones_like(image),
            torch.ones_like(extras),
            lasts,
            channels,
            0,
            8 + channels + 3,
            16,
            16,
        ]
        program.launch("blend_backward", (1, 1), (256,), [*lists, None, image, extras, *pulled, where(sums)])
        return image, extras, lasts, sums

    for far in (False, True):
        results.append(launch(program, far))
    for early, late in zip(*results, strict=True):
        assert early.abs().sum() > 0
        torch.testing.assert_close(late, early)
    for wrong in ("(long long)which * (channels + 3)", "(long long)which * stride"):
        with pytest.raises(KernelError, match="outside"):
            launch(kernels("blending.cu", (wrong, wrong[11:]), **part), True)


def test_contributions() -> None:
    splats, _, _ = arranged()
    order, start, most = splats[:, 6].argsort().int(), MOST - COUNT, rasterizer_cuda._MOST_PAIRS

    def launch(program: Emulated, far: bool) -> Tensor:
        begin, where, sums = most - COUNT if far else 0, at(start if far else 0), new(COUNT, 4)
        ranges = torch.tensor([[begin, begin + COUNT]], dtype=torch.int32)
        lists = [ranges, Window(order + start if far else order, begin), where(splats)]
        program.launch("contribute", (1, 1), (256,), [*lists, None, 16, 16, where(sums)])
        return sums

    program = kernels("contributions.cu")
    early, late = launch(program, False), launch(program, True)
    torch.testing.assert_close(late, early)
    assert early.any()
    with pytest.raises(KernelError, match="outside"):
        launch(kernels("contributions.cu", ("(long long)numbers", "(int)numbers")), True)


def test_ssim() -> None:
    """The last image of a launch: 65,535 of 200 x 200 are more pixels than 32 bits count."""
    first, second = torch.rand(200, 200, dtype=torch.float64), torch.rand(200, 200, dtype=torch.float64)
    blocks, upstream = 7 * 7, torch.ones(1, dtype=torch.float64)

    def launch(program: Emulated, images: int) -> Sequence[Tensor]:
        before = images - 1
        sums, slopes, gradient = new(blocks), new(3, 200, 200), new(200, 200)
        pixels = [Window(one, before * 40000) for one in (first, second)]
        grid, turn = (7, 7, images), before * blocks
        arguments = [*pixels, 200, 200, 0, 1.0, Window(sums, turn), Window(slopes, 3 * before * 40000)]
        program.launch("ssim_forward", grid, (32, 8), arguments, first_block=turn)
        arguments = [
            *pixels,
            Window(slopes, 3 * before * 40000),
            upstream,
            200,
            200,
            Window(gradient, before * 40000),
        ]
        program.launch("ssim_backward", grid, (32, 8), arguments, first_block=turn)
        return sums, slopes, gradient

    for early, late in zip(launch(kernels("ssim.cu"), 1), launch(kernels("ssim.cu"), 65535), strict=True):
        assert torch.equal(early, late) and early.abs().sum() > 0
    with pytest.raises(KernelError, match="outside"):
        launch(
            kernels(
                "ssim.cu", ("(long long)blockIdx.z * height * width", "(int)blockIdx.z * height * width")
            ),
            65535,
        )


def test_knn_tree() -> None:
    """Codes, leaves and nodes; the search reads boxes from all over the tree, and no window holds them."""
    most, program = knn_cuda._MOST_POINTS, kernels("knn.cu")
    points, bounds = torch.rand(1536, 3, dtype=torch.float64), new(6) + torch.tensor([0.0, 0, 0, 1, 1, 1])
    results = []
    for count in (1536, most):
        first, leaves = count - 1536, count // 8
        codes, boxes, nodes = new(1536, dtype=torch.int64), new(192, 6), new(192, 6)
        given, made = Window(points, 3 * first), Window(boxes, 6 * (leaves - 192))
        held = torch.cat([points, points + 1], dim=1)
        arguments = [given, bounds, count, Window(codes, first)]
        program.launch("knn_codes", (count // 256,), (256,), arguments, first_block=first // 256)
        grid, skipped = ((leaves + 255) // 256,), leaves // 256
        program.launch("knn_leaves", grid, (256,), [given, count, leaves, made], first_block=skipped)
        arguments = [Window(held, 6 * first), count, leaves, Window(nodes, 6 * (leaves - 192))]
        program.launch("knn_nodes", grid, (256,), arguments, first_block=skipped)
        results.append((codes, boxes, nodes))
    assert all(torch.equal(*pair) and pair[0].any() for pair in zip(*results, strict=True))
