"""What gswarp is asked for, and what is refused in its place; gswarp itself is tests/native/test_warp.py."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from splatfix.kernels import nvrtc, on_warp

from .compare import ARGUMENTS, in_precision
from .scenes import cloud, look_at

asked: dict[str, Any] = {}
drawn: dict[str, torch.Tensor] = {}


@pytest.fixture(autouse=True)
def gswarp(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A gswarp that writes down what it is asked for, on a Warp that finds a driver."""
    warp = ModuleType("warp")
    warp.__dict__.update(
        config=SimpleNamespace(log_level=20),
        LOG_WARNING=30,
        __version__="1.19.0",
        is_cuda_available=lambda: True,
    )
    rasterizer = ModuleType("gswarp.rasterizer")

    def settings(**given: Any) -> SimpleNamespace:
        return SimpleNamespace(**given)

    def rasterize_gaussians(*given: Any) -> tuple[Any, ...]:
        asked["rasterizer"] = given
        drawn["radii"], drawn["alpha"] = torch.ones(5, dtype=torch.int32), torch.ones(1, 17, 33)
        return "color", drawn["radii"], SimpleNamespace(alpha=drawn["alpha"], depth="depth")

    rasterizer.__dict__.update(
        GaussianRasterizationSettings=settings, rasterize_gaussians=rasterize_gaussians
    )
    ssim, knn = ModuleType("gswarp.fused_ssim"), ModuleType("gswarp.knn")
    ssim.__dict__["fused_ssim"] = lambda *given: asked.update(ssim=given)
    knn.__dict__["distCUDA2"] = lambda *given: asked.update(knn=given)
    modules = {"warp": warp, "gswarp": ModuleType("gswarp")}
    for module in (rasterizer, ssim, knn):
        modules[module.__name__] = module
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    asked.clear()
    return asked


def inputs() -> list[Any]:
    leaves: dict[str, Any] = {name: value.float() for name, value in cloud(5).items()}
    leaves["means2D"] = torch.zeros(5, 3)
    return [leaves.get(name) for name in ARGUMENTS]


def test_matrices_lie_in_memory_as_gswarp_reads_them() -> None:
    """Trainers pass transposed views; double ones, or ones elsewhere, are converted as the extension converts none."""
    settings = look_at(33, 17)
    settings = settings._replace(viewmatrix=settings.viewmatrix.T.contiguous().T)
    assert not settings.viewmatrix.is_contiguous()
    color, radii, invdepth, alpha, depth = on_warp.rasterize(settings, *inputs())
    assert (color, invdepth, depth) == ("color", None, "depth")
    for name, item in (("radii", radii), ("alpha", alpha)):
        item.zero_()
        assert bool(drawn[name].all()), f"{name}: gswarp's way back reads its own"
    *tensors, given = asked["rasterizer"]
    assert given.viewmatrix.is_contiguous() and given.viewmatrix.dtype == torch.float32
    assert torch.equal(given.viewmatrix.double(), settings.viewmatrix.float().double())
    assert given.bg.shape == (3,) and given.campos.shape == (3,) and given.prefiltered is False
    means, means2D, shs, colors, opacities, scales, rotations, covariances = tensors
    assert means.shape == (5, 3) and means2D.shape == (5, 3) and opacities.numel() == 5
    assert (
        colors.numel() == covariances.numel() == 0
        and shs.shape[0] == scales.shape[0] == rotations.shape[0] == 5
    )


def test_used_gaussians_are_counted_beside_it() -> None:
    given = inputs()
    given[2][3] = 1e-4  # too faint for any pixel
    used = torch.zeros(5, dtype=torch.int32)
    on_warp.rasterize(in_precision(look_at(33, 17), torch.float32), *given, used=used)
    assert used[3] == 0 and used.sum() > 1 and used.max() == 1


def test_the_quiet_half_and_the_loud_half() -> None:
    on_warp.mean_ssim(torch.rand(1, 1, 8, 8), torch.rand(1, 1, 8, 8, requires_grad=True), "same")
    _, second, padding, train = asked["ssim"]
    assert (padding, train, second.requires_grad) == ("same", False, False)
    on_warp.mean_of_three(torch.rand(5, 3, requires_grad=True))
    assert not asked["knn"][0].requires_grad
    assert sys.modules["warp"].config.log_level == 30, "a trainer's output is its own"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, ""),
        ({"antialiasing": True}, "antialiasing"),
        ({"kernel_size": 0.1}, "kernel_size"),
        ({"subpixel_offset": torch.ones(17, 33, 2)}, "subpixel_offset"),
        ({"subpixel_offset": torch.zeros(17, 33, 2)}, ""),
        ({"compact_box": 0.5}, "compact box"),
        ({"upstream_gradients": True}, "upstream_gradients"),
        ({"bg": torch.zeros(4)}, "a background of 4 channels"),
        ({"prefiltered": True}, ""),  # answered before: none is behind the near plane
    ],
)
def test_what_it_would_ignore_is_refused(options: dict[str, Any], reason: str) -> None:
    message = on_warp.refusal(look_at(33, 17, **options), torch.zeros(5, 3))
    assert reason in message and bool(message) is bool(reason)


def test_absolute_gradients_are_refused() -> None:
    assert "absolute gradients" in on_warp.refusal(look_at(33, 17), torch.zeros(5, 4))


def test_a_second_pass_is_plain_pytorch_and_said() -> None:
    """MCMC's and Taming's sums: the caller warns, and writes down that PyTorch ran."""
    with pytest.raises(nvrtc.NoKernels, match="no contributions"):
        on_warp.sums()


def test_without_gswarp_or_a_driver_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["warp"], "is_cuda_available", lambda: False)
    with pytest.raises(nvrtc.NoKernels, match=r"Warp 1\.19\.0 finds no driver .* install the drop-in again"):
        on_warp.mean_of_three(torch.rand(5, 3))
    monkeypatch.setitem(sys.modules, "gswarp.knn", None)
    with pytest.raises(nvrtc.NoKernels, match="gswarp cannot be imported"):
        on_warp.mean_of_three(torch.rand(5, 3))
