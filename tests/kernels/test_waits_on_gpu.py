"""On a GPU: how often a frame of our CUDA kernels makes the host wait, as torch itself counts it."""

import warnings
from typing import Any

import pytest
import torch

from .cuda.test_entries import FRAMES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU and a CUDA build of torch"),
]


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
