"""The table of results: one row for each scene, the same in Markdown and HTML; what was not measured is –."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splatfix.certify.model import SceneRun

HEADERS = (
    "iterations",
    "resolution",
    "training views",
    "Gaussians",
    "PLY",
    "time",
    "it/s",
    "loss",
    "training PSNR",
    "held-out PSNR",
    "SSIM",
    "LPIPS",
    "peak memory",
)
"""Of :func:`row`; scene and result, which each form shows in its own way, come before."""


SHORTEST_PUBLISHED = 7_000
"""Iterations. Kerbl et al. 2023 publish figures at 7,000 and 30,000."""


def row(run: SceneRun) -> tuple[str, ...]:
    """A scene's results, a cell for each of HEADERS: ``2,600 → 6,045`` is from the start to the end."""
    result = run.result
    ply = finite(part(result, "ply").get("bytes"))
    return (
        shown(result.get("iterations"), "{:,.0f}"),
        resolution(result) or "–",
        _views(result),
        _from_to(part(result, "gaussians"), ("initial", "final"), "{:,.0f}"),
        "–" if ply is None else f"{ply / 1e6:.2f} MB" if ply >= 1e5 else f"{ply / 1e3:.0f} kB",
        f"{run.seconds:.0f} s",
        shown(result.get("iterations_per_second"), "{:.2f}"),
        _from_to(part(result, "train_loss"), ("first", "last"), "{:.4f}"),
        shown(part(result, "training_views").get("psnr"), "{:.2f} dB"),
        shown(part(result, "heldout").get("psnr"), "{:.2f} dB"),
        shown(part(result, "heldout").get("ssim"), "{:.4f}"),
        shown(part(result, "heldout").get("lpips"), "{:.4f}"),
        _peaks(result),
    )


def legend(runs: Sequence[SceneRun]) -> str:
    """What the columns mean, for these scenes."""
    cuda = any(isinstance(part(run.result, "memory").get("cuda"), Mapping) for run in runs)
    memory = "allocated on the GPU" if cuda else "resident, Python and torch included"
    lpips = {str(part(run.result, "heldout").get("lpips_note") or "") for run in runs} - {""}
    lengths = [finite(run.result.get("iterations")) for run in runs]
    short = any(length is not None and length < SHORTEST_PUBLISHED for length in lengths)
    return (
        (
            "Short run: figures are not comparable with published ones (7,000 or 30,000 iterations). "
            if short
            else ""
        )
        + "PSNR, SSIM and LPIPS are means over views: SSIM, LPIPS and held-out PSNR over views that were not trained on, "
        "training PSNR over as many that were. Higher is better, of LPIPS and loss lower. Loss is the mean of the first and "
        "of the last ten iterations. Time includes loading and evaluation, it/s (iterations per second) does not. Peak memory "
        f"is that of training / evaluation, {memory}."
        + (f" LPIPS: {', '.join(sorted(lpips))}." if lpips else "")
    )


def resolution(result: Mapping[str, Any]) -> str:
    """``1600x1064``; "" where it is not known."""
    size = result.get("resolution")
    return "x".join(map(str, size)) if isinstance(size, (list, tuple)) and len(size) == 2 else ""


def part(result: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a trainer's result; empty where it has none."""
    found = result.get(name)
    return found if isinstance(found, Mapping) else {}


def finite(value: object) -> float | None:
    """A number that can be drawn (float32 ends at 3.4e38), or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e60 else None


def shown(value: object, form: str) -> str:
    """A number in this form; – where it is none."""
    known = finite(value)
    return "–" if known is None else form.format(known)


def _views(result: Mapping[str, Any]) -> str:
    names = part(result, "split").get("train")
    return str(len(names)) if isinstance(names, (list, tuple)) else "–"


def _from_to(values: Mapping[str, Any], names: tuple[str, str], form: str) -> str:
    first, last = (shown(values.get(name), form) for name in names)
    return first if first == last == "–" else f"{first} → {last}"


def _peaks(result: Mapping[str, Any]) -> str:
    memory = part(result, "memory")
    cuda = memory.get("cuda")
    if isinstance(cuda, Mapping):
        peaks = [part(cuda, phase).get("allocated") for phase in ("train", "eval")]
    else:
        peaks = [part(memory, "host").get(phase) for phase in ("train", "eval")]
    known = [finite(value) for value in peaks]
    if known == [None, None]:
        return "–"
    return " / ".join("–" if value is None else f"{value / 2**20:,.0f}" for value in known) + " MiB"
