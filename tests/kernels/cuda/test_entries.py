"""From what a user calls to the kernels: tensors that say they are on a GPU, and emulated kernels that get them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from splatfix.install.dropins import variants_of
from splatfix.kernels import gsplat_csrc, nvrtc, rasterizer_cuda, surfels_cuda
from splatfix.kernels.contributions import contributions
from splatfix.kernels.knn import distCUDA2
from splatfix.kernels.rasterizer import rasterize
from splatfix.kernels.ssim import fused_ssim
from splatfix.kernels.surfels import rasterize_surfels
from splatfix.knowledge.dropins import dropin_of
from tests.waits import Waits

from ..compare import ARGUMENTS, SURFELS, OnGpu, assert_close, in_precision, pulled
from ..gsplat.cases import listed
from ..scenes import cloud, discs, look_at, rand
from .emulator import SOURCES, Emulated, emulated_module, use_kernels
from .test_gsplat import HEIGHT, PINHOLE, WIDTH
from .test_gsplat import cloud as gsplat_cloud


@pytest.fixture
def chosen(emulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATFIX_KERNELS", "nvrtc")
    monkeypatch.setattr(nvrtc, "ran", {})


def moved(values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.float().as_subclass(OnGpu) for name, value in values.items()}


def near(found: Tensor, expected: Tensor) -> None:
    assert_close("what comes back", found.as_subclass(Tensor), expected, 2e-5, least=1.0)


def settings(**options: Any) -> Any:
    return in_precision(look_at(40, 30, **options), torch.float32)


def gsplat_frame(**inputs: Tensor) -> Sequence[Tensor]:
    """A step of gsplat on its module: projection, tiles, image, and the gradients of all."""
    given = (inputs["means"], None, inputs["quats"], inputs["scales"])
    views, image = (inputs["viewmats"], inputs["Ks"]), (WIDTH, HEIGHT, 0.3)
    planes = (0.1, 100.0, 0.0, False, PINHOLE)
    seen = gsplat_csrc.projection_ewa_3dgs_fused_fwd(*given, None, *views, *image, *planes)
    radii, means2d, depths, conics, _ = seen
    offsets, pairs = listed(means2d[0], radii[0], depths[0], image[:2], 16)
    offsets = offsets[None]
    opacities = inputs["opacities"][:, None].expand(1, 2, -1).contiguous()
    flat = (means2d, conics, means2d.new_ones(*means2d.shape[:-1], 3), opacities, None, None)
    frame = (WIDTH, HEIGHT, 16, offsets, pairs)
    drawn, alphas, lasts = gsplat_csrc.rasterize_to_pixels_3dgs_fwd(*flat, *frame)
    back = (alphas, lasts, torch.ones_like(drawn), torch.ones_like(alphas).to(drawn.dtype), False)
    _, v_means2d, v_conics, *_ = gsplat_csrc.rasterize_to_pixels_3dgs_bwd(*flat, *frame, *back)
    back = (radii, conics, None, v_means2d, torch.zeros_like(depths), v_conics, None, True)
    pulled_back = gsplat_csrc.projection_ewa_3dgs_fused_bwd(*given, *views, *image, PINHOLE, *back)
    return [drawn, *(item for item in pulled_back if item is not None)]


def draw_used(view: Any, *inputs: Tensor) -> Any:
    return rasterizer_cuda.rasterize(view, *inputs, used=torch.zeros(len(inputs[0]), dtype=torch.int32))


@pytest.mark.parametrize(
    ("dropin", "render", "is_flat"),
    [
        ("diff-gaussian-rasterization v1", rasterizer_cuda.rasterize, False),
        ("diff-gaussian-rasterization mcmc", draw_used, False),
        ("diff-surfel-rasterization", surfels_cuda.rasterize, True),
    ],
)
def test_what_an_installation_compiles_is_what_a_training_asks_for(
    dropin: str, render: Any, is_flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that a drop-in brings along is found by its options: others would be compiled again, unnoticed."""
    requested: list[Any] = []

    def module(name: str, defines: Any, like: Tensor) -> Any:
        requested.append((name, defines))
        return emulated_module(name, defines, like)

    use_kernels(module, monkeypatch)
    inputs, names = (discs(5), SURFELS) if is_flat else (cloud(5), ARGUMENTS)
    # Gaussians with depth, and with absolute gradients, are code of their own
    for some, width in itertools.product([(0,), (0, 4)][: 2 - is_flat], [3, 4][: 2 - is_flat]):
        pulled(render, look_at(20, 20), inputs, torch.float64, some, width, names)
    brought = dropin_of(*dropin.split())
    sources = [Path(name).name for name in brought.cuda if name.endswith(".cu")]
    carried = [(name, options) for name in sources for options in variants_of(brought, name)]
    assert all(one in requested for one in carried) and all(one in carried for one in requested)


@pytest.mark.parametrize("draw", [rasterize, rasterize_surfels, contributions])
def test_a_compiler_is_kept_out(draw: Any, chosen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.11 fails on what is traced there; others trace a launch, operation by operation."""
    from torch._dynamo.testing import CompileCounterWithBackend  # a second, which no other test needs

    def module(name: str, defines: Any, like: Tensor) -> Any:
        return Emulated((SOURCES / name).read_text(), defines, like.dtype, seed=1)

    use_kernels(module, monkeypatch)
    made = discs(6) if draw is rasterize_surfels else cloud(6)
    if draw is contributions:
        del made["shs"]
    else:
        made["means2D"] = torch.zeros(6, 3)
    leaves = {name: value.float().requires_grad_() for name, value in made.items()}
    view, traced = settings(), CompileCounterWithBackend("aot_eager")

    def drawn(**given: Tensor) -> Sequence[Tensor]:
        return draw(view, **given)

    results = []
    for call in (drawn, torch.compile(drawn, backend=traced)):
        given = call(**{name: leaf.as_subclass(OnGpu) for name, leaf in leaves.items()})
        results.append([image.as_subclass(Tensor) for image in given])
        loss = sum(image.square().sum() for image in results[-1] if image.requires_grad)
        if isinstance(loss, Tensor):
            results[-1] += torch.autograd.grad(loss, list(leaves.values()))
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))
    assert list(nvrtc.ran.values()) == ["nvrtc"] and not traced.frame_count


class Frame(NamedTuple):
    """A call, its inputs, what it is reported as, and how often it may wait: for the pairs of tiles and Gaussians."""

    draw: Callable[..., Sequence[Tensor]]
    made: dict[str, Tensor]
    reported: tuple[str, ...] = ("rasterizer",)
    waits: int = 1


def drawing(
    draw: Callable[..., Any], made: Any, columns: int = 3, reported: str = "rasterizer", **options: Any
) -> Frame:
    """Every output of a rasterizer with such a `means2D`."""

    @functools.cache
    def view(dtype: torch.dtype, device: torch.device) -> Any:
        return in_precision(look_at(40, 30, **options), dtype, str(device))

    def draw_as_given(**given: Tensor) -> Sequence[Tensor]:
        means: Tensor = given["means3D"]
        drawn: Sequence[Tensor] = draw(view(means.dtype, means.device), **given)
        return drawn

    return Frame(draw_as_given, {**made, "means2D": torch.zeros(len(made["means3D"]), columns)}, (reported,))


def with_used(view: Any, **given: Tensor) -> Sequence[Tensor]:
    used = given["means3D"].new_zeros(len(given["means3D"]), dtype=torch.int32)
    return rasterize(view, **given, used=used)


def sums(view: Any, means2D: Tensor, **given: Tensor) -> Any:
    return contributions(view, **given)


IMAGES = {"image": rand(1, 3, 20, 30), "other": rand(1, 3, 20, 30, seed=1)}
WEIGHED = {**cloud(40), "pixel_weights": rand(30, 40)}
del WEIGHED["shs"]
UNMOVED = {"kernel_size": 0.1, "subpixel_offset": torch.zeros(30, 40, 2)}
MOVED = {"kernel_size": 0.1, "subpixel_offset": rand(30, 40, 2) - 0.5}
GSPLAT = (
    "gsplat intersect_tile",
    *(f"gsplat projection_ewa_3dgs_fused_{way}" for way in ("fwd", "bwd")),
    *(f"gsplat rasterize_to_pixels_3dgs_{way}" for way in ("fwd", "bwd")),
)
FRAMES: dict[str, Frame] = {
    "v1, with depth and alpha": drawing(rasterize, cloud(40)),
    "v1, covariances": drawing(rasterize, cloud(40, covariance=True)),
    "v1, upstream's gradients": drawing(rasterize, cloud(40), upstream_gradients=True),
    "dr_aa": drawing(rasterize, cloud(40), antialiasing=True),
    "mip": drawing(rasterize, cloud(40), **UNMOVED),
    "mip, moved pixels": drawing(rasterize, cloud(40), **MOVED),
    "fastgs": drawing(rasterize, cloud(40), 4, compact_box=0.5),
    "mcmc": drawing(with_used, cloud(40)),
    "sums": drawing(sums, WEIGHED, reported="contributions"),
    "2DGS": drawing(rasterize_surfels, discs(25, seed=1), reported="surfels"),
    "gsplat": Frame(gsplat_frame, gsplat_cloud(40), GSPLAT),
    "SSIM": Frame(lambda image, other: [fused_ssim(image, other)], IMAGES, ("ssim",), 0),
    "kNN": Frame(lambda points: [distCUDA2(points)], {"points": rand(100, 3)}, ("knn",)),
}


@pytest.mark.parametrize("name", FRAMES)
def test_what_is_called_runs_on_the_kernels(name: str, chosen: None) -> None:
    frame = FRAMES[name]
    result = frame.draw(**moved(frame.made))
    assert nvrtc.ran == dict.fromkeys(frame.reported, "nvrtc")
    exact = frame.draw(**{key: value.double() for key, value in frame.made.items()})
    for one, two in zip(result, exact, strict=True):
        near(one, two)


def test_what_no_kernel_serves_is_told(chosen: None) -> None:
    inputs = discs(25, seed=1) | {"colors_precomp": rand(25, 9)}
    del inputs["shs"]
    with pytest.raises(nvrtc.NoKernels, match="more than 8 channels"):
        rasterize_surfels(settings(bg=torch.zeros(9)), means2D=None, **moved(inputs))
    with pytest.raises(nvrtc.NoKernels, match="no CUDA kernel for projection_ewa_simple_fwd"):
        gsplat_csrc.projection_ewa_simple_fwd(moved(inputs)["means3D"], *[None] * 5)


def waits_of(name: str, kind: type[Tensor]) -> list[str]:
    """What the second frame and its gradients wait for."""
    frame = FRAMES[name]
    inputs = {key: value.float().requires_grad_().as_subclass(kind) for key, value in frame.made.items()}
    waits = Waits()
    for _ in range(2):
        waits = Waits()
        with waits:
            drawn = [image.as_subclass(Tensor) for image in frame.draw(**inputs)]
            loss = sum(image.sum() for image in drawn if image.requires_grad)
            if isinstance(loss, Tensor):
                loss.backward()
    return waits.found


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_waits_for_the_gpu_once_at_most(name: str, chosen: None) -> None:
    found = waits_of(name, OnGpu)
    assert len(found) <= FRAMES[name].waits, found


@pytest.mark.parametrize(("name", "most"), [("v1, with depth and alpha", 11), ("2DGS", 6), ("SSIM", 0)])
def test_pure_pytorch_waits_for_sizes_alone(name: str, most: int) -> None:
    """Its lists are made by operations whose size only the GPU knows; no number of Python is copied there on the way. What is
    moved lies there already: the matrices of a camera."""
    found = [wait for wait in waits_of(name, Tensor) if wait != "to"]
    assert len(found) <= most, found


@pytest.mark.parametrize("guess", [0.0, 0.5, 7.0])
def test_offsets_that_move_farther_than_the_last_ones(
    guess: float, chosen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rasterizer_cuda, "_moved", guess)
    view, inputs = settings(kernel_size=0.1, subpixel_offset=6 * rand(30, 40, 2)), cloud(40)
    result = rasterize(view, means2D=None, **moved(inputs))
    double = in_precision(view, torch.float64)
    for one, two in zip(result, rasterize(double, means2D=None, **inputs), strict=True):
        near(one, two)
    assert rasterizer_cuda._moved == 6.0
    broken = view._replace(subpixel_offset=torch.full((30, 40, 2), torch.nan))
    with pytest.raises(ValueError, match="subpixel_offset"):
        rasterize(broken, means2D=None, **moved(inputs))
