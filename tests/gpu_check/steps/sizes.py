"""Sizes of real trainings: 1080p with a million Gaussians, ten million points, SSIM at 1080p; time and peak of memory."""

from __future__ import annotations

from ..context import Context, Failed
from ..plan import Notes

# Environment, what, module or renderer; native ones only where they were installed.
KERNELS = (
    ("stack", "ssim", "splatfix.kernels.ssim", ""),
    ("stack", "ssim", "fused_ssim", "fused-ssim"),
    ("stack", "knn", "splatfix.kernels.knn", ""),
    ("stack", "knn", "simple_knn._C", "simple-knn"),
    ("stack", "rasterizer", "inria", "inria-v1"),
    ("gsplat", "rasterizer", "gsplat", "gsplat"),
    ("stack", "rasterizer", "torch", ""),
)


def run(context: Context, notes: Notes) -> None:
    """Each in a process of its own, so that memory is its own too."""
    width = context.size(1920, 64)
    sizes = {
        "ssim": (str(width), f"{width} pixels wide"),
        "knn": (str(points := context.size(10_000_000, 500)), f"{points:,} points"),
        "rasterizer": (
            f"{width}x{(count := context.size(1_000_000, 300))}",
            f"{count:,} Gaussians, {width} pixels wide",
        ),
    }
    for environment, what, name, source in KERNELS:
        if source and source not in context.sources:
            notes.numbers[name] = f"not timed: GPU_SOURCES holds no {source}"
            continue
        size, words = sizes[what]
        try:
            found = context.answer(environment, "timed", f"{what}:{name}", size, timeout=45)
        except Failed as error:
            notes.problems.append(str(error))
            continue
        notes.numbers[f"{what}:{name}"] = {"size": words, **found}
        notes.expect(
            found["finite"],
            f"{what} by {name}, {words}",
            f"{found['best_s'] * 1000:.2f} ms, peak {found['peak_mib']} MiB",
        )
