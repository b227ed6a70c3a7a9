"""gsplat's functions on emulated CUDA kernels against the PyTorch ones: values 1e-5 and gradients 1e-4 in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from splatfix.kernels import gsplat_csrc
from splatfix.kernels.gsplat_cuda import KERNELS, refusal
from splatfix.kernels.helpers import binomial_table
from splatfix.kernels.nvrtc import NoKernels
from tests.tables import data

from ..compare import BOTH, assert_close
from ..gsplat.cases import listed, tiles_of
from ..scenes import rand

pytestmark = pytest.mark.usefixtures("emulated")

WIDTH, HEIGHT = 52, 41
PINHOLE, ORTHOGRAPHIC, FISHEYE = 0, 1, 2
Scene = dict[str, Tensor]


class Own(NamedTuple):
    """An argument that each made itself."""

    expected: Tensor
    result: Tensor


def agree(name: str, dtype: torch.dtype, *arguments: Any, slack: float = 1.0) -> list[Any]:
    """What PyTorch gives in float64, once the kernels give the same in this precision; int32 and int64 to the bit."""
    return [one and one.expected for one in compare(name, dtype, *arguments, slack=slack)]


def compare(name: str, dtype: torch.dtype, *arguments: Any, slack: float = 1.0) -> list[Own | None]:
    """What both give of arguments that both have exactly."""
    expected_given, given = list(arguments), list(arguments)
    for k, item in enumerate(arguments):
        if isinstance(item, Own):
            expected_given[k], given[k] = item
        elif isinstance(item, Tensor) and item.dtype == torch.float64:
            expected_given[k], given[k] = item.to(dtype).double(), item.to(dtype)
    assert not refusal(name)
    expected, result = getattr(gsplat_csrc, name)(*expected_given), KERNELS[name](*given)
    if isinstance(expected, Tensor):
        expected, result = [expected], [result]
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    if name.endswith("bwd"):
        tolerance = 1e-8 if dtype == torch.float64 else 1e-4
    assert len(expected) == len(result)
    for k, (one, other) in enumerate(zip(expected, result, strict=True)):
        assert (one is None) == (other is None), f"{name}: result {k}"
        if one is None:
            continue
        assert one.shape == other.shape, f"{name}: result {k}"
        if one.dtype in (torch.int32, torch.int64):
            assert torch.equal(one, other) and one.dtype == other.dtype, f"{name}: result {k}"
        else:
            assert_close(f"{name}: result {k}", other, one, slack * tolerance)
    return [None if one is None else Own(one, other) for one, other in zip(expected, result, strict=True)]


def signed(*shape: int, seed: int = 0) -> Tensor:
    return 2 * rand(*shape, seed=seed) - 1


def cloud(count: int = 60, batches: int = 1, cameras: int = 2) -> Scene:
    """[B, N, D] Gaussians before [B, C] cameras, some behind, at the edge, large, flat, needles, points, no numbers."""
    means = 1.5 * signed(batches, count, 3, seed=1)
    scales = 0.02 + 0.2 * rand(batches, count, 3, seed=2)
    means[:, 0] = torch.tensor([0.0, 0.0, -9.0], dtype=torch.float64)
    means[:, 1] = torch.tensor([0.0, 0.0, -3.99], dtype=torch.float64)
    means[:, 2] = torch.tensor([2.9, 0.1, -0.5], dtype=torch.float64)
    scales[:, 2], scales[:, 3] = 0.5, 3.0
    scales[:, 4, 1] = 1e-6
    scales[:, 5, :2] = 1e-5
    scales[:, 6] = 1e-7
    quats = signed(batches, count, 4, seed=4) * (0.3 + rand(batches, count, 1, seed=5))
    means[:, 7, 1], scales[:, 8, 0], quats[:, 9] = torch.nan, torch.inf, 0.0
    axis = torch.triu(0.3 * signed(batches, cameras, 3, 3, seed=3), 1)
    viewmats = torch.zeros(batches, cameras, 4, 4, dtype=torch.float64)
    viewmats[..., :3, :3] = torch.linalg.matrix_exp(axis - axis.transpose(-1, -2))
    viewmats[..., :3, 3] = torch.tensor([0.1, -0.2, 4.0], dtype=torch.float64)
    viewmats[..., 3, 3] = 1
    intrinsics = torch.zeros(batches, cameras, 3, 3, dtype=torch.float64)
    intrinsics[..., 0, 0], intrinsics[..., 1, 1], intrinsics[..., 2, 2] = 50.0, 45.0, 1
    intrinsics[..., 0, 2], intrinsics[..., 1, 2] = 24.0, 22.5
    gaussians = {"means": means, "quats": quats, "scales": scales, "opacities": rand(batches, count, seed=6)}
    return gaussians | {"viewmats": viewmats, "Ks": intrinsics}


def shapes(made: Scene, covariances: bool) -> list[Any]:
    """means, covars, quats, scales, as the projection takes them."""
    if not covariances:
        return [made["means"], None, made["quats"], made["scales"]]
    covars, _ = gsplat_csrc.quat_scale_to_covar_preci_fwd(made["quats"], made["scales"], True, False, True)
    return [made["means"], covars, None, None]


def upstream(results: Sequence[Tensor | None]) -> list[Any]:
    return [
        None if item is None else signed(*item.shape, seed=10 + k).to(torch.float64)
        for k, item in enumerate(results)
    ]


@BOTH
@pytest.mark.parametrize("triangle", [True, False])
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_covariances(wanted: tuple[bool, bool], triangle: bool, dtype: torch.dtype) -> None:
    quats, scales = signed(3, 70, 4), 0.1 + rand(3, 70, 3)
    made = agree("quat_scale_to_covar_preci_fwd", dtype, quats, scales, *wanted, triangle)
    agree("quat_scale_to_covar_preci_bwd", dtype, quats, scales, triangle, *upstream(made))


@BOTH
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("degree", range(5))
def test_harmonics(degree: int, masked: bool, dtype: torch.dtype) -> None:
    directions, coefficients = 3 * signed(2, 40, 3), signed(2, 40, 25, 3, seed=1)
    masks = rand(2, 40, seed=2) > 0.5 if masked else None
    (colors,) = agree("spherical_harmonics_fwd", dtype, degree, directions, coefficients, masks)
    given = (25, degree, directions, coefficients, masks, *upstream([colors]))
    agree("spherical_harmonics_bwd", dtype, *given, True)
    agree("spherical_harmonics_bwd", dtype, *given, False)


@BOTH
def test_relocation(dtype: torch.dtype) -> None:
    opacities = 0.005 + 0.99 * rand(120)
    ratios, table = (1 + 8 * rand(120, seed=1)).int(), binomial_table().double()
    agree("relocation", dtype, opacities, rand(120, 3, seed=2), ratios, table, 51)


@BOTH
@pytest.mark.parametrize("rows", [False, True])
def test_adam(rows: bool, dtype: torch.dtype) -> None:
    state = [signed(70, 3, seed=1), 0.1 * signed(70, 3, seed=2), rand(70, 3, seed=3)]
    valid = rand(70, seed=4) > 0.5 if rows else None
    expected = [item.to(dtype).double().clone() for item in state]
    result = [item.to(dtype) for item in state]
    gradient = signed(70, 3).to(dtype)
    gsplat_csrc.adam(expected[0], gradient.double(), *expected[1:], valid, 1e-2, 0.9, 0.999, 1e-8)
    KERNELS["adam"](result[0], gradient, *result[1:], valid, 1e-2, 0.9, 0.999, 1e-8)
    for one, other in zip(expected, result, strict=True):
        assert_close("state", other, one, 1e-10 if dtype == torch.float64 else 1e-6)
    with pytest.raises(NoKernels, match="contiguous"):
        KERNELS["adam"](result[0].t(), gradient, *result[1:], valid, 1e-2, 0.9, 0.999, 1e-8)


CAMERAS = {
    "pinhole": (1, 2, PINHOLE, False),
    "orthographic": (1, 2, ORTHOGRAPHIC, False),
    "batches": (2, 3, PINHOLE, False),
    "covariances": (1, 1, PINHOLE, True),
}


@BOTH
@pytest.mark.parametrize("compensated", [False, True])
@pytest.mark.parametrize("name", CAMERAS)
def test_projection(name: str, compensated: bool, dtype: torch.dtype) -> None:
    batches, cameras, model, covariances = CAMERAS[name]
    made = cloud(batches=batches, cameras=cameras)
    given, views = shapes(made, covariances), (made["viewmats"], made["Ks"])
    image = (WIDTH, HEIGHT, 0.3)
    for opacities, isotropic in ((made["opacities"], False), (None, False), (None, True)):
        planes = (0.1, 100.0, 0.0, compensated, model, isotropic)
        seen = agree("projection_ewa_3dgs_fused_fwd", dtype, *given, opacities, *views, *image, *planes)
    assert bool((seen[0] > 0).any()) and bool((seen[0] == 0).any())
    back = (*seen[:1], *seen[3:], *upstream(seen)[1:])
    for with_views in (False, True):
        agree("projection_ewa_3dgs_fused_bwd", dtype, *given, *views, *image, model, *back, with_views)


@BOTH
@pytest.mark.parametrize("name", CAMERAS)
def test_packed_projection(name: str, dtype: torch.dtype) -> None:
    batches, cameras, model, covariances = CAMERAS[name]
    made = cloud(batches=batches, cameras=cameras)
    given, views = shapes(made, covariances), (made["viewmats"], made["Ks"])
    image, planes = (WIDTH, HEIGHT, 0.3), (0.1, 100.0, 1.0, True, model)
    seen = agree("projection_ewa_3dgs_packed_fwd", dtype, *given, made["opacities"], *views, *image, *planes)
    back = (*seen[1:4], *seen[7:], *upstream(seen)[5:])
    for sparse in (False, True):
        agree("projection_ewa_3dgs_packed_bwd", dtype, *given, *views, *image, model, *back, True, sparse)


@BOTH
@pytest.mark.parametrize("isotropic", [False, True])
@pytest.mark.parametrize("batches", [1, 2])
def test_projection_of_surfels(batches: int, isotropic: bool, dtype: torch.dtype) -> None:
    made = cloud(batches=batches)
    given = (made["means"], made["quats"], made["scales"], made["viewmats"], made["Ks"], WIDTH, HEIGHT)
    seen = agree("projection_2dgs_fused_fwd", dtype, *given, 0.3, 0.1, 100.0, 0.0, isotropic)
    radii, _, _, transforms, _ = seen
    _, v_means2d, v_depths, v_transforms, v_normals = upstream(seen)
    for with_views in (False, True):
        back = (radii, transforms, v_means2d, v_depths, v_normals, v_transforms, with_views)
        agree("projection_2dgs_fused_bwd", dtype, *given, *back)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("tile_size", [5, 8, 16])
def test_tiles(tile_size: int, packed: bool) -> None:
    """Two of one depth, one behind the camera, one that a warp lists, one outside."""
    means2d, radii = 60 * signed(3, 40, 2), (20 * rand(3, 40, 2, seed=1)).int()
    depths = 5 * rand(3, 40, seed=2)
    depths[0, 4], depths[0, 5], means2d[0, 3:6] = depths[0, 3], -1.0, 20.0
    means2d[1, 7], radii[1, 7] = 20.0, 100
    radii[2, 8, 0] = 0
    images = None
    if packed:
        means2d, radii, depths = means2d.flatten(0, 1), radii.flatten(0, 1), depths.flatten()
        images = torch.arange(3).repeat_interleave(40)
    for sort in (True, False):
        tiles = tiles_of((WIDTH, HEIGHT), tile_size)
        given = (means2d, radii, depths, images, images, 3, tile_size, *tiles, sort, False)
        agree("intersect_tile", torch.float32, *given)


def with_opaque_ones(count: int, faint: bool) -> Scene:
    """One of them is enough for the cap of alpha; faint, so that pixels see hundreds of the others."""
    made = cloud(count)
    if faint:
        made["opacities"] = 0.006 + 0.02 * made["opacities"]
        made["means"] *= 0.3
    made["opacities"][:, 10:13] = 1.0
    return made


def ellipses(count: int = 60, tile_size: int = 16, faint: bool = False) -> list[Any]:
    """means2d, conics, opacities, offsets and pairs of two images."""
    made = with_opaque_ones(count, faint)
    planes = (WIDTH, HEIGHT, 0.3, 0.1, 100.0, 0.0, False, PINHOLE)
    given = (*shapes(made, False), made["opacities"], made["viewmats"], made["Ks"], *planes)
    seen: Sequence[Any] = gsplat_csrc.projection_ewa_3dgs_fused_fwd(*given)
    radii, means2d, depths, conics = (item[0] for item in seen[:4])
    means2d[:, 10:12] = 20.51  # in the middle of a pixel
    pairs = listed(means2d, radii, depths, (WIDTH, HEIGHT), tile_size)
    return [means2d, conics, made["opacities"].expand(2, count).contiguous(), *pairs]


PIXELS: dict[str, dict[str, Any]] = data(__file__)["pixels"]


@BOTH
@pytest.mark.parametrize("name", PIXELS)
def test_pixels(name: str, dtype: torch.dtype) -> None:
    pixels(dtype, **PIXELS[name])


def pixels(
    dtype: torch.dtype,
    channels: int = 3,
    background: bool = False,
    masks: bool = False,
    absolute: bool = False,
    count: int = 60,
    tile_size: int = 16,
    faint: bool = False,
    slack: float = 1.0,
) -> None:
    means2d, conics, opacities, offsets, pairs = ellipses(count, tile_size, faint)
    under = rand(2, channels, seed=8) if background else None
    shown = rand(*offsets.shape, seed=9) > 0.3 if masks else None
    given = (means2d, conics, signed(2, count, channels, seed=7), opacities, under, shown)
    frame = (WIDTH, HEIGHT, tile_size, offsets, pairs)
    image, alphas, lasts = compare("rasterize_to_pixels_3dgs_fwd", dtype, *given, *frame, slack=slack)
    assert image and alphas and 0.3 < float(alphas.expected.max()) <= 0.9999
    back = (alphas, lasts, *upstream([image.expected, alphas.expected]), absolute)
    agree("rasterize_to_pixels_3dgs_bwd", dtype, *given, *frame, *back, slack=slack)


@BOTH
@pytest.mark.parametrize("turns", [(0, 10**10), (0, 1), (1, 2)])
def test_indices(turns: tuple[int, int], dtype: torch.dtype) -> None:
    means2d, conics, opacities, offsets, pairs = ellipses(400, 8, faint=True)
    given = (means2d, conics, opacities, WIDTH, HEIGHT, 8, offsets, pairs)
    left = 0.2 + rand(2, HEIGHT, WIDTH)
    gaussians, _ = agree("rasterize_to_indices_3dgs", dtype, *turns, left, *given)
    assert len(gaussians)


SURFELS: dict[str, dict[str, Any]] = data(__file__)["surfels"]


@BOTH
@pytest.mark.parametrize("name", SURFELS)
def test_pixels_of_surfels(name: str, dtype: torch.dtype) -> None:
    surfels(dtype, **SURFELS[name])


def surfels(
    dtype: torch.dtype,
    channels: int,
    background: bool = False,
    masks: bool = False,
    absolute: bool = False,
    count: int = 60,
    tile_size: int = 16,
    faint: bool = False,
    slack: float = 1.0,
) -> None:
    made = with_opaque_ones(count, faint)
    planes = (made["Ks"], WIDTH, HEIGHT, 0.3, 0.1, 100.0, 0.0)
    seen = gsplat_csrc.projection_2dgs_fused_fwd(
        made["means"], made["quats"], made["scales"], made["viewmats"], *planes
    )
    radii, means2d, depths, transforms, normals = (item[0] for item in seen)
    means2d[:, 10:12] = 20.51
    offsets, pairs = listed(means2d, radii, depths, (WIDTH, HEIGHT), tile_size)
    colors = torch.cat([signed(2, count, channels - 1, seed=7), depths[..., None]], dim=-1)
    under = rand(2, channels, seed=8) if background else None
    shown = rand(*offsets.shape, seed=9) > 0.3 if masks else None
    given = (means2d, transforms, colors, made["opacities"].expand(2, count).contiguous(), normals)
    frame = (under, shown, WIDTH, HEIGHT, tile_size, offsets, pairs)
    drawn = compare("rasterize_to_pixels_2dgs_fwd", dtype, *given, *frame, slack=slack)
    image, alphas, *_, lasts, medians = drawn
    back = (image, alphas, lasts, medians, *upstream([one and one.expected for one in drawn[:5]]), absolute)
    given = (*given, torch.zeros_like(means2d))
    agree("rasterize_to_pixels_2dgs_bwd", dtype, *given, *frame, *back, slack=slack)


def fisheye() -> None:
    made = cloud(12)
    views = (made["viewmats"], made["Ks"], 9, 9, 0.3, 0.1, 9.0, 0.0, False, FISHEYE)
    KERNELS["projection_ewa_3dgs_fused_fwd"](*shapes(made, False), None, *views)


REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "fisheye": ("fisheye", fisheye),
    "tiles": ("no multiple of 8", lambda: pixels(torch.float64, tile_size=12)),
    "absolute": ("more than 16 channels", lambda: pixels(torch.float64, channels=17, absolute=True)),
    "surfels": ("more than 4 channels", lambda: surfels(torch.float64, channels=5, absolute=True)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_kernels_do_not_serve(name: str) -> None:
    words, call = REFUSED[name]
    with pytest.raises(NoKernels, match=words):
        call()
    assert "no CUDA kernel for rasterize_to_indices_2dgs" in refusal("rasterize_to_indices_2dgs")
