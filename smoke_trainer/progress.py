"""Progress while training: JSON lines on stdout, or one live line on a terminal, plain lines elsewhere.

Standard library only: splatfix certify imports `words`, so that terminal, log and report say the same.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from dataclasses import asdict
from typing import Any, Callable, Dict, Mapping

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


State = Dict[str, Any]
"""What is known after an iteration, by the names in FORMS; and ``iteration``, ``iterations``, ``seconds``, and with the first one
``run``, how the run is set up: one that is killed leaves it in its progress lines."""
Show = Callable[[State], None]


def show_progress(as_json: bool) -> Show:
    """A function that takes the state after each iteration.

    It shows one every few seconds, and always the last one.
    """
    shown_at = -math.inf

    def show(state: State) -> None:
        nonlocal shown_at
        is_last = state["iteration"] == state["iterations"]
        now = time.monotonic()
        if now - shown_at < EVERY and not is_last:
            return
        shown_at = now
        if as_json:
            sys.stdout.write(json.dumps({**state, "event": "progress"}, default=asdict) + "\n")
            sys.stdout.flush()
        elif sys.stderr.isatty() and not is_last:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"{words(state)[:width]}\033[K\r")  # the next one takes its place
        else:
            sys.stderr.write(f"{words(state)}\n")

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
