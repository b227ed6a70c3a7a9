"""One frozen scene through every renderer: colour, radii, every gradient and the screen gradient, side by side.

The measure is our kernel in float64 on the CPU, whose derivatives equal finite differences (`facts` of the real kernels:
Inria's equal them too where neither scale_modifier nor antialiasing nor Mip's filter take part).
"""

import shutil
from pathlib import Path

import numpy as np
from kernels.rasterizer_golden import differences

from ..context import DEVICE, Context
from ..record import Notes

# Largest differences: of the image, the share of pixels off by more than 1e-4, of radii; of gradients, relative to the largest.
LIMITS = {"color": 1e-2, "pixels": 1e-3, "radii": 0.01}, 1e-2
# gsplat bounds a Gaussian by its opacity and caps alpha at 0.999, so its image is the same only to about 1/255.
LOOSE = {"color": 2e-2, "pixels": 5e-2, "radii": 1.0}, 5e-2


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
    with np.load(drawn) as result, np.load(exact) as expected:
        table = differences(result, expected)
    notes.numbers["differences"] = table
    limits, gradient = LOOSE if renderer == "gsplat" else LIMITS
    for key, value in table.items():
        allowed = limits.get(key, gradient)
        notes.expect(value <= allowed, f"{name}, {key}", f"{value:.1e} of {allowed:.0e} allowed")
    shutil.copy(drawn, Path(context.out) / f"scene-{environment}-{renderer}.npz")
