"""Our own CUDA kernels, compiled by NVRTC without nvcc and a host compiler."""

from __future__ import annotations

from ..context import Context
from ..plan import Notes

ALLOWED = {"knn": 1e-6, "ssim": 1e-5, "surfels": 1e-3}
"""Largest error relative to float64; of rasterizers, images and gradients alike, 1e-4."""


def run(context: Context, notes: Notes) -> None:
    """Compiled, loaded and run beside the PyTorch kernels in float64; emulated on the CPU in a rehearsal."""
    found = context.answer("plain", "compiled", "emulated" if context.rehearsal else "cuda", timeout=90)
    notes.numbers.update(found)
    for kernel, error in found.items():
        if kernel.split()[0] in ("rasterizer", "surfels", "contributions", "ssim", "knn"):
            allowed = ALLOWED.get(kernel, 1e-4)
            notes.expect(
                error <= allowed,
                f"our CUDA {kernel} equals float64",
                f"error {error:.1e} of at most {allowed:.0e}",
            )
