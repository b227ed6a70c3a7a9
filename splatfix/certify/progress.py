"""How far a training is, in words: the same on a terminal, in a log, in a report, and of a trainer that died."""

import math
from collections.abc import Mapping
from typing import Any

from splatfix.core.words import counted

_FORMS = {
    "iterations_per_second": "{:.1f} it/s",
    "loss": "loss {:.4f}",
    "psnr": "PSNR {:.2f} dB",
    "heldout_psnr": "held-out {:.2f} dB",
    "gaussians": "",
    "vram_allocated_gb": "VRAM {:.2f} GiB",
    "rss_gb": "host memory {:.2f} GiB",
}
"""In the order in which they are shown."""


def title(where: str, state: Mapping[str, Any]) -> str:
    """``study (scene 2 of 3)``; what is no scene, such as the kernels, as it is."""
    if "scenes" not in state:
        return where
    return f"{where} (scene {state['scene']} of {state['scenes']})"


def words(state: Mapping[str, Any], *, left: bool = True) -> str:
    """``iteration 120 of 200, 4.1 it/s, loss 0.0832, PSNR 21.30 dB, held-out 20.91 dB, 5312 Gaussians,
    host memory 0.41 GiB, 0:20 left``, without what is not known; "" where not even the iteration is.

    PSNR is of the training view of the latest recorded iteration; VRAM is what tensors hold, host memory what is resident.
    """
    numbers = {name: float(value) for name, value in state.items() if isinstance(value, (int, float))}
    known = {name: value for name, value in numbers.items() if math.isfinite(value)}
    done, total = known.get("iteration"), known.get("iterations")
    if done is None or total is None:
        return ""
    parts = [f"iteration {done:.0f} of {total:.0f}"]
    for name, form in _FORMS.items():
        if name not in known:
            continue
        if name == "gaussians":
            parts.append(counted(known[name], "Gaussian"))
        else:
            parts.append(form.format(known[name]))
    speed = known.get("iterations_per_second")
    if left and speed and total > done:
        parts.append(f"{duration((total - done) / speed)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """``0:20``, ``1:02:05``."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
