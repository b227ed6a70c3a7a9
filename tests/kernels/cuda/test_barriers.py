"""Every barrier of the kernels is needed, and the emulator notices when one is taken out."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
import torch

from splatfix.kernels import rasterizer_cuda, surfels_cuda
from splatfix.kernels.ssim_cuda import mean_ssim

from ..compare import SURFELS, pulled
from ..gaussian_cases import faint
from ..scenes import look_at
from . import test_gsplat
from .emulator import SOURCES, Emulated, KernelError, needs_compiler, use_kernels

BARRIER = re.compile(r"^\s*__syncthreads\(\);$", re.MULTILINE)
FILES = ("ssim.cu", "blending.cu", "surfels.cu", "gsplat_pixels.cu", "gsplat_surfels.cu")
FOUND = [(name, k) for name in FILES for k, _ in enumerate(BARRIER.finditer((SOURCES / name).read_text()))]


def both_ways(name: str) -> None:
    """Forward and backward of a scene in which every barrier matters."""
    inputs = faint(300, 0.05, spread=0.3)
    if name == "ssim.cu":
        image = torch.rand(1, 1, 40, 40, requires_grad=True)
        mean_ssim(image, torch.rand(1, 1, 40, 40), "same").backward()
    elif name == "gsplat_pixels.cu":
        test_gsplat.pixels(torch.float32, count=600, faint=True, slack=3.0)
    elif name == "gsplat_surfels.cu":
        test_gsplat.surfels(torch.float32, channels=4, count=600, faint=True, slack=3.0)
    elif name == "surfels.cu":
        inputs["scales"] = inputs["scales"][:, :2].contiguous()
        pulled(surfels_cuda.rasterize, look_at(20, 20), inputs, torch.float32, outputs=[0], names=SURFELS)
    else:
        pulled(rasterizer_cuda.rasterize, look_at(20, 20), inputs, torch.float32, outputs=[0])


def test_there_are_barriers() -> None:
    assert len(FOUND) == 19


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(("file", "which"), FOUND)
def test_a_barrier_less_is_a_race(file: str, which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str, defines: Mapping[str, object], like: torch.Tensor) -> Emulated:
        text = (SOURCES / name).read_text()
        if name == file:
            position = list(BARRIER.finditer(text))[which]
            text = text[: position.start()] + "\n" + text[position.end() :]
        return Emulated(text, defines, like.dtype)

    use_kernels(without, monkeypatch)
    with pytest.raises(KernelError, match=r"race on|before it is written"):
        both_ways(file)


@pytest.mark.parametrize("name", FILES)
def test_with_all_of_them_there_is_none(name: str, emulated: None) -> None:
    both_ways(name)
