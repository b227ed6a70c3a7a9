"""The CUDA kernels on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.kernels.cuda.emulator import COMPILER, emulated_module  # noqa: E402


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for kernels gets emulated ones."""
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    for file in ("ssim_cuda", "knn_cuda", "rasterizer_cuda", "surfels_cuda", "contributions_cuda"):
        monkeypatch.setattr(f"splatfix.kernels.{file}.module", emulated_module)
