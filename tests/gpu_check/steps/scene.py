"""One frozen scene through every renderer: colour, radii, every gradient and the screen gradient, side by side.

The measure is our kernel in float64 on the CPU, whose derivatives equal finite differences (`facts` of the real kernels:
Inria's equal them too where neither scale_modifier nor antialiasing nor Mip's filter take part).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from ..context import DEVICE, Context
from ..notes import Failed, Notes

# Largest differences: of the image; the share of pixels off by more than 1e-4; gradients, relative to the largest entry.
LIMITS = {"color": 1e-2, "pixels": 1e-3, "gradient": 1e-2, "radii": 0.01}
# gsplat bounds a Gaussian by its opacity and caps alpha at 0.999, so its image is the same only to about 1/255.
LOOSE = {"color": 2e-2, "pixels": 5e-2, "gradient": 5e-2, "radii": 1.0}


def run(context: Context, notes: Notes, renderer: str, environment: str) -> None:
    """Draw with one renderer of one environment."""
    folder = context.folder("scene")
    drawn = folder / f"{environment}-{renderer}.npz"
    about = context.answer(environment, "draw", renderer, DEVICE, drawn, timeout=90)
    # only Mip's filter changes what the base rasterizer draws
    kind = "mip-splatting" if about["variant"] == "mip-splatting" else "base"
    exact = folder / f"exact-{kind}.npz"
    if not exact.exists():
        context.answer(environment, "draw", "reference", "cpu", exact, about["variant"], timeout=90)
    notes.numbers.update(about)
    name = f"{renderer} ({about['variant']})" if about["variant"] else renderer
    if about["absent"]:
        notes.expect(False, f"{name} returns every gradient", f"none came for {', '.join(about['absent'])}")
        return
    table = differences(drawn, exact)
    notes.numbers["differences"] = table
    limits = LOOSE if renderer == "gsplat" else LIMITS
    for key, value in table.items():
        limit = limits[key if key in limits else "gradient"]
        notes.expect(value <= limit, f"{name}, {key}", f"{value:.1e} of {limit:.0e} allowed")
    shutil.copy(drawn, Path(context.out) / f"scene-{environment}-{renderer}.npz")


def differences(drawn: Path, exact: Path) -> dict[str, float]:
    """Of the image (largest, and the share of pixels off by more than 1e-4), the share of radii off by more than one pixel,
    and of every gradient relative to its largest entry; NaN counts as infinite.

    Raises:
        Failed: the arrays are not of the same names and shapes.
    """
    with np.load(drawn) as result, np.load(exact) as expected:
        shapes = [{name: file[name].shape for name in file} for file in (result, expected)]
        if shapes[0] != shapes[1]:
            raise Failed(f"the arrays differ in shape: {shapes[0]} and {shapes[1]}")
        error = np.abs(result["color"].astype(np.float64) - expected["color"])
        apart = np.abs(result["radii"].astype(np.float64) - expected["radii"])
        table = {
            "color": _worst(error),
            "pixels": float(np.mean(~(error <= 1e-4))),
            "radii": float(np.mean(~(apart <= 1))),
        }
        for name in result:
            if name.startswith("grad_") or name == "screen":
                scale = max(float(np.abs(expected[name]).max()), 1e-12)
                table[name] = _worst(np.abs(result[name].astype(np.float64) - expected[name])) / scale
    return table


def _worst(errors: np.ndarray) -> float:
    return float(errors.max()) if np.isfinite(errors).all() else float("inf")
