"""Progress while training: JSON lines on stdout, or one live line on a terminal, plain lines elsewhere.

Standard library only: splatfix certify imports `words`, so that terminal, log and report say the same.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Callable, Dict, Mapping, Optional

EVERY = 1.0  # seconds between two lines
# In the order in which they are shown.
FORMS = {
    "iterations_per_second": "{:.1f} it/s",
    "loss": "loss {:.4f}",
    "psnr": "PSNR {:.2f} dB",
    "heldout_psnr": "held-out {:.2f} dB",
    "gaussians": "{:.0f} Gaussians",
    "vram_allocated_gb": "VRAM {:.2f} GiB",
    "rss_gb": "host memory {:.2f} GiB",
}


@dataclass(frozen=True)
class ProgressState:
    """What is known after an iteration. PSNR is of the training view of the latest recorded one, memory in GiB; `run` is how a
    run is set up, with its first iteration: one that is killed leaves it in its progress lines."""

    iteration: int
    iterations: int
    gaussians: int
    seconds: float
    iterations_per_second: float
    loss: Optional[float] = None
    psnr: Optional[float] = None
    vram_allocated_gb: Optional[float] = None
    rss_gb: Optional[float] = None
    heldout_psnr: Optional[float] = None
    run: Optional[Dict[str, Any]] = None

    def as_json(self) -> Dict[str, Any]:
        """For a JSON line, without what is not known; the loss is always there."""
        return {name: value for name, value in asdict(self).items() if value is not None or name == "loss"}


Show = Callable[[ProgressState], None]


def show_progress(as_json: bool) -> Show:
    """A function that takes the state after each iteration.

    It shows one every few seconds, and always the last one and new held-out PSNRs; all have the latest PSNR.
    """
    shown_at = -math.inf
    heldout_psnr: Optional[float] = None

    def show(state: ProgressState) -> None:
        nonlocal shown_at, heldout_psnr
        is_last = state.iteration == state.iterations
        is_news = state.heldout_psnr is not None or is_last
        heldout_psnr = state.heldout_psnr or heldout_psnr
        now = time.monotonic()
        if now - shown_at < EVERY and not is_news:
            return
        shown_at = now
        state = replace(state, heldout_psnr=heldout_psnr)
        if as_json:
            sys.stdout.write(json.dumps({**state.as_json(), "event": "progress"}) + "\n")
            sys.stdout.flush()
        elif sys.stderr.isatty() and not is_last:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"{words(vars(state))[:width]}\033[K\r")  # the next one takes its place
        else:
            sys.stderr.write(f"{words(vars(state))}\n")

    return show


def words(state: Mapping[str, Any], left: bool = True) -> str:
    """`iteration 120 of 200, 4.1 it/s, loss 0.0832, PSNR 21.30 dB, held-out 20.91 dB, 5312 Gaussians, VRAM 1.20 GiB, host
    memory 2.10 GiB, 0:20 left`, without what is not known; "" where not even the iteration is.

    VRAM is what tensors hold, host memory what is resident; `left` says whether the time that is left is told.
    """
    known = {}
    for name, value in state.items():
        if isinstance(value, (int, float)) and math.isfinite(value):
            known[name] = float(value)
    done, total = known.get("iteration"), known.get("iterations")
    if done is None or total is None:
        return ""
    parts = [f"iteration {done:.0f} of {total:.0f}"]
    parts += [form.format(known[name]) for name, form in FORMS.items() if name in known]
    speed = known.get("iterations_per_second")
    if left and speed and total > done:
        minutes, seconds = divmod(round((total - done) / speed), 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{minutes}:{seconds:02d}"
        if hours:
            clock = f"{hours}:{minutes:02d}:{seconds:02d}"
        parts.append(f"{clock} left")
    return ", ".join(parts)
