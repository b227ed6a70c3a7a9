"""Progress while training: JSON lines on stdout, a live line on a terminal (with rich), plain lines elsewhere."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Callable, Dict, Iterator, Optional

PLAIN_EVERY = 1.0  # seconds between two lines
LIVE_EVERY = 0.1  # seconds between two updates of the live line


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
    console = _rich_console() if sys.stderr.isatty() else None
    if console is None:
        yield _throttled(PLAIN_EVERY, _as_line)
        return
    from rich.progress import BarColumn, Progress, TextColumn  # optional

    columns = (
        BarColumn(bar_width=None),
        TextColumn("{task.fields[summary]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("training", total=None, summary="")

        def show(state: ProgressState) -> None:
            bar.update(task, total=state.iterations, completed=state.iteration, summary=summary(state))

        yield _throttled(LIVE_EVERY, show)


def summary(state: ProgressState) -> str:
    """`iteration 120 of 200, 4.1 it/s, loss 0.0832, PSNR 21.30 dB, held-out 20.91 dB, 5312 Gaussians, VRAM 1.20 GiB, host
    memory 2.10 GiB, 0:20 left`, without what is unknown; the words of splatfix certify, which a test compares."""
    parts = [f"iteration {state.iteration} of {state.iterations}", f"{state.iterations_per_second:.1f} it/s"]
    if state.loss is not None:
        parts.append(f"loss {state.loss:.4f}")
    if state.psnr is not None:
        parts.append(f"PSNR {state.psnr:.2f} dB")
    if state.heldout_psnr is not None:
        parts.append(f"held-out {state.heldout_psnr:.2f} dB")
    plural = "" if state.gaussians == 1 else "s"
    parts.append(f"{state.gaussians} Gaussian{plural}")
    if state.vram_allocated_gb is not None:
        parts.append(f"VRAM {state.vram_allocated_gb:.2f} GiB")
    if state.rss_gb is not None:
        parts.append(f"host memory {state.rss_gb:.2f} GiB")
    remaining = state.iterations - state.iteration
    if remaining and state.iterations_per_second:
        parts.append(f"{_duration(remaining / state.iterations_per_second)} left")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    """`2:05`, `1:02:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}"


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
    sys.stdout.write(json.dumps(dict(state.as_json(), event="progress")) + "\n")
    sys.stdout.flush()


def _as_line(state: ProgressState) -> None:
    sys.stderr.write(f"{summary(state)}\n")


def _rich_console() -> Any:
    """rich's console for standard error, or None if rich is not installed (it is optional)."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(stderr=True)
