"""Every barrier of the kernels is needed, and the emulator notices when one is taken out."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
import torch

from splatfix.kernels import surfels_cuda
from splatfix.kernels.rasterizer_cuda import rasterize
from splatfix.kernels.ssim_cuda import mean_ssim
from tests.kernels.cuda.compare import SURFELS, in_precision
from tests.kernels.cuda.emulator import COMPILER, SOURCES, Emulated, KernelError
from tests.kernels.rasterizer_compare import ARGUMENTS, cloud, look_at

BARRIER = re.compile(r"^\s*__syncthreads\(\);$", re.MULTILINE)
FOUND = [
    (name, k)
    for name in ("blending.cu", "surfels.cu", "ssim.cu")
    for k, _ in enumerate(BARRIER.finditer((SOURCES / name).read_text()))
]


def both_ways(name: str) -> None:
    """Forward and backward of a scene in which every barrier matters."""
    if name == "ssim.cu":
        image = torch.rand(1, 1, 40, 40, requires_grad=True)
        mean_ssim(image, torch.rand(1, 1, 40, 40), "same").backward()
        return
    settings = in_precision(look_at(20, 20), torch.float32)
    inputs = {k: v.float().requires_grad_() for k, v in cloud(300, spread=0.3).items()}
    with torch.no_grad():
        inputs["opacities"] *= 0.05
    if name == "surfels.cu":
        inputs = {k: v.detach().requires_grad_() for k, v in inputs.items()}
        inputs["scales"] = inputs["scales"].detach()[:, :2].contiguous().requires_grad_()
        color, _, _ = surfels_cuda.rasterize(settings, *(inputs.get(name) for name in SURFELS))
        color.sum().backward()
        return
    color, *_ = rasterize(settings, *(inputs.get(name) for name in ARGUMENTS))
    color.sum().backward()


def test_there_are_barriers() -> None:
    assert len(FOUND) == 11


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize(("file", "which"), FOUND)
def test_a_barrier_less_is_a_race(file: str, which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str, defines: Mapping[str, object], like: torch.Tensor) -> Emulated:
        text = (SOURCES / name).read_text()
        if name != file:
            return Emulated(text, defines, like.dtype)
        position = list(BARRIER.finditer(text))[which]
        return Emulated(text[: position.start()] + "\n" + text[position.end() :], defines, like.dtype)

    monkeypatch.setattr("splatfix.kernels.ssim_cuda.module", without)
    monkeypatch.setattr("splatfix.kernels.rasterizer_cuda.module", without)
    monkeypatch.setattr("splatfix.kernels.surfels_cuda.module", without)
    with pytest.raises(KernelError, match=r"race on|before it is written"):
        both_ways(file)


def test_with_all_of_them_there_is_none(emulated: None) -> None:
    for name in ("ssim.cu", "blending.cu", "surfels.cu"):
        both_ways(name)
