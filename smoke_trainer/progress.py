"""Progress while training: JSON lines on stdout, a live line on a terminal (with rich), plain lines elsewhere.

Standard library only, and rich where it is: splatfix certify imports `words`, so that terminal, log and report say the same.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Callable, Dict, Iterator, Mapping, Optional

PLAIN_EVERY = 1.0  # seconds between two lines
LIVE_EVERY = 0.1  # seconds between two updates of the live line
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
    loss: Optional[float]
    gaussians: int
    seconds: float
    iterations_per_second: float
    psnr: Optional[float] = None
    vram_allocated_gb: Optional[float] = None
    rss_gb: Optional[float] = None
    heldout_psnr: Optional[float] = None
    run: Optional[Dict[str, Any]] = None

    def as_json(self) -> Dict[str, Any]:
        """For a JSON line, without what is not known; the loss is always there."""
        return {name: value for name, value in asdict(self).items() if value is not None or name == "loss"}


Show = Callable[[ProgressState], None]


@contextlib.contextmanager
def show_progress(as_json: bool) -> Iterator[Show]:
    """A function that takes the state after each iteration and shows some of them."""
    if as_json:
        yield _throttled(PLAIN_EVERY, _as_json)
        return
    is_live = sys.stderr.isatty()
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:  # it is optional
        is_live = False
    if not is_live:
        yield _throttled(PLAIN_EVERY, _as_line)
        return
    columns = (
        BarColumn(bar_width=None),
        TextColumn("{task.fields[summary]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=None, summary="")

        def show(state: ProgressState) -> None:
            bar.update(task, total=state.iterations, completed=state.iteration, summary=words(vars(state)))

        yield _throttled(LIVE_EVERY, show)


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


def _throttled(seconds: float, show: Show) -> Show:
    """Pass on a state every few seconds, and always the last one and new held-out PSNRs; all have the latest PSNR."""
    shown_at: Optional[float] = None
    heldout_psnr: Optional[float] = None

    def show_some(state: ProgressState) -> None:
        nonlocal shown_at, heldout_psnr
        is_news = state.heldout_psnr is not None or state.iteration == state.iterations
        if state.heldout_psnr is not None:
            heldout_psnr = state.heldout_psnr
        now = time.monotonic()
        if shown_at is not None and now - shown_at < seconds and not is_news:
            return
        shown_at = now
        show(replace(state, heldout_psnr=heldout_psnr))

    return show_some


def _as_json(state: ProgressState) -> None:
    sys.stdout.write(json.dumps({**state.as_json(), "event": "progress"}) + "\n")
    sys.stdout.flush()


def _as_line(state: ProgressState) -> None:
    sys.stderr.write(f"{words(vars(state))}\n")
