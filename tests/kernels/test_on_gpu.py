"""On a GPU: our kernels in PyTorch, and those that NVRTC compiles, against PyTorch in float64 on the CPU; and how often a
frame of the latter makes the host wait, as torch itself counts it.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from splatfix.kernels import contributions_cuda, knn_cuda, rasterizer_cuda, ssim_cuda, surfels_cuda
from splatfix.kernels.contributions import contributions
from splatfix.kernels.knn import distCUDA2
from splatfix.kernels.rasterizer import rasterize
from splatfix.kernels.ssim import fused_ssim
from splatfix.kernels.surfels import rasterize_surfels

from .compare import SURFELS, assert_agree, assert_close, gaussians_of, in_precision, map_by_map
from .cuda.test_entries import FRAMES, gsplat_cloud, gsplat_frame
from .gaussian_cases import OPTIONS
from .scenes import KINDS, cloud, discs, look_at, points_of, rand

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU and a CUDA build of torch"),
]
SINGLE = torch.float32


@pytest.fixture(params=[False, True])
def allow_tf32(request):
    """Set and put back by hand: monkeypatch would delete what is no attribute of the instance."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = request.param
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("allow_tf32")
def test_pytorch_draws_as_on_the_cpu() -> None:
    scene = look_at(120, 90), cloud(500, size=(0.02, 0.3))
    assert_agree(rasterize, rasterize, *scene, SINGLE, value=5e-3, gradient=1e-3, device="cuda")


@pytest.mark.parametrize("kind", KINDS)
def test_pytorch_finds_the_same_neighbors(kind: str) -> None:
    points = points_of(kind, 5000, 1)
    result = distCUDA2(points.cuda()).cpu()
    assert torch.allclose(result, distCUDA2(points, engine="torch"), rtol=1e-5, atol=0)


@pytest.mark.parametrize("upstream", [False, True])
@pytest.mark.parametrize("name", ["plain", "antialiasing", "kernel_size 0.1", "FastGS, half"])
def test_compiled_gaussians(name: str, upstream: bool, compiled: None) -> None:
    scene = look_at(90, 70, upstream_gradients=upstream, **OPTIONS[name]), cloud(400, size=(0.02, 0.2))
    both = (rasterize, rasterizer_cuda.rasterize)
    assert_agree(*both, *scene, SINGLE, value=1e-4, gradient=1e-4, device="cuda")


def test_compiled_surfels(compiled: None) -> None:
    both = (map_by_map(one, without_median=True) for one in (rasterize_surfels, surfels_cuda.rasterize))
    scene = look_at(60, 50), discs(25, seed=1)
    assert_agree(*both, *scene, SINGLE, value=1e-3, gradient=1e-3, device="cuda", names=SURFELS)


def test_compiled_contributions(compiled: None) -> None:
    inputs, settings = cloud(60), look_at(60, 50)
    given = gaussians_of(inputs, SINGLE, "cuda", colors=1)
    result = contributions_cuda.sums(in_precision(settings, SINGLE, "cuda"), given, None)
    expected = contributions(settings, **{name: value for name, value in inputs.items() if name != "shs"})
    for name, sums, exact in zip(expected._fields, result, expected, strict=True):
        assert_close(name, sums, exact, 1e-4)


def test_compiled_gsplat(compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step: projection, tiles, pixels, and back."""
    monkeypatch.setenv("SPLATFIX_KERNELS", "nvrtc")
    inputs = gsplat_cloud(60)
    result = gsplat_frame(**{name: value.float().cuda() for name, value in inputs.items()})
    for made, exact in zip(result, gsplat_frame(**inputs), strict=True):
        assert_close("a step", made, exact, 1e-3)


def test_compiled_ssim(compiled: None) -> None:
    first, second = rand(1, 3, 96, 128), rand(1, 3, 96, 128, seed=1)
    leaf, exact_leaf = first.float().cuda().requires_grad_(), first.requires_grad_()
    mean = ssim_cuda.mean_ssim(leaf, second.float().cuda(), "same")
    exact_mean = fused_ssim(exact_leaf, second)
    assert_close("mean", mean, exact_mean, 1e-5)
    (slope,) = torch.autograd.grad(mean, leaf)
    assert_close("gradient", slope, *torch.autograd.grad(exact_mean, exact_leaf), 1e-5)


def test_compiled_neighbors(compiled: None) -> None:
    points = rand(5_000, 3).float()
    assert_close("distances", knn_cuda.mean_of_three(points.cuda()), distCUDA2(points.double()), 1e-6)


@pytest.mark.parametrize("name", ["v1, with depth and alpha", "mcmc", "mip, moved pixels", "2DGS", "SSIM"])
def test_compiled_frames_wait_once_at_most(
    name: str, compiled: None, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """The first call loads code and is not counted."""
    monkeypatch.setenv("SPLATFIX_KERNELS", "nvrtc")
    frame = FRAMES[name]
    leaves = {key: value.float().cuda().requires_grad_() for key, value in frame.made.items()}
    for _ in range(2):
        recwarn.clear()
        warnings.simplefilter("always")
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            loss: Any = sum(image.sum() for image in frame.draw(**leaves) if image.requires_grad)
            loss.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waited = [str(one.message) for one in recwarn if "synchronizing" in str(one.message)]
    assert len(waited) <= frame.waits, waited
