"""On a GPU: our rasterizer on CUDA against itself on the CPU, and against the CUDA extension where one is installed."""

from __future__ import annotations

import pytest
import torch

from splatfix.kernels.rasterizer import GaussianRasterizer, rasterize

from .rasterizer_compare import cloud, look_at
from .rasterizer_golden import on, variant

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU and a CUDA build of torch"),
]


def gradients(
    color: torch.Tensor, leaves: dict[str, torch.Tensor], means2D: torch.Tensor
) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    upstream = torch.randn(color.shape, generator=generator).to(color.device)
    result = torch.autograd.grad(color, [*leaves.values(), means2D], upstream)
    return dict(zip([*leaves, "means2D"], (g.cpu() for g in result), strict=True))


def close(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], tolerance: float) -> None:
    for name, expected in theirs.items():
        error = (ours[name] - expected).abs().max() / expected.abs().max().clamp_min(1e-9)
        assert error < tolerance, f"{name}: {error:.1e}"


@pytest.fixture(params=[False, True])
def allow_tf32(request):
    """Set and put back by hand: monkeypatch would delete what is no attribute of the instance."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = request.param
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("allow_tf32")
def test_cuda_equals_cpu():
    settings, inputs = look_at(120, 90), cloud(500, size=(0.02, 0.3))
    results = []
    for device in ("cpu", "cuda"):
        view, leaves, means2D = on(device, (settings, inputs))
        got = rasterize(view, means2D=means2D, **leaves)
        results.append((got.color.detach().cpu(), got.radii.cpu(), gradients(got.color, leaves, means2D)))
    (color, radii, expected), (cuda_color, cuda_radii, result) = results
    assert torch.equal(radii, cuda_radii)
    assert ((color - cuda_color).abs() > 1e-5).sum() <= 3 and (color - cuda_color).abs().max() < 5e-3
    close(result, expected, 1e-3)


def test_equals_the_extension():
    native = pytest.importorskip("diff_gaussian_rasterization")
    if variant(native):
        pytest.skip(f"the installed diff_gaussian_rasterization: {variant(native)}")
    fields = native.GaussianRasterizationSettings._fields
    settings, inputs = look_at(120, 90), cloud(500, size=(0.02, 0.3))
    view, leaves, means2D = on("cuda", (settings, inputs))
    ours = GaussianRasterizer(view)(means2D=means2D, **leaves)
    expected_settings = native.GaussianRasterizationSettings(**{name: getattr(view, name) for name in fields})
    theirs = native.GaussianRasterizer(expected_settings)(means2D=means2D, **leaves)
    # radii are rounded up: in single precision a few may fall on the other side of a whole number
    apart = (ours[1] - theirs[1]).abs()
    assert apart.max() <= 1 and (apart > 0).float().mean() < 0.01
    error = (ours[0] - theirs[0]).detach().abs()
    assert (error > 1e-4).float().mean() < 1e-3 and error.max() < 1e-2
    close(gradients(ours[0], leaves, means2D), gradients(theirs[0], leaves, means2D), 1e-2)
