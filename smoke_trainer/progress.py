"""Progress while training: JSON lines on stdout, a live line on a terminal (with rich), plain lines elsewhere."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

PLAIN_EVERY = 1.0  # seconds between two lines
LIVE_EVERY = 0.1  # seconds between two updates of the live line

State = Dict[str, Any]
Show = Callable[[State], None]


@contextlib.contextmanager
def show_progress(as_json: bool) -> Iterator[Show]:
    """A function that takes the state after each iteration and shows some of them."""
    console = None if as_json or not sys.stderr.isatty() else _rich_console()
    if console is None:
        yield _every(PLAIN_EVERY, _as_json if as_json else _as_line)
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        BarColumn(bar_width=None),
        TextColumn("{task.fields[summary]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("training", total=None, summary="")

        def show(state: State) -> None:
            bar.update(task, total=state["iterations"], completed=state["iteration"], summary=summary(state))

        yield _every(LIVE_EVERY, show)


def summary(state: State) -> str:
    """`iteration 120 of 200, 4.1 it/s, loss 0.0832, PSNR 21.30 dB, held-out 20.91 dB, 5312 Gaussians, VRAM 1.20 GiB, host
    memory 2.10 GiB, 0:20 left`, without what is unknown; the words of splatfix certify, which a test compares."""
    parts: List[str] = [f"iteration {state['iteration']} of {state['iterations']}"]
    for name, form in (
        ("iterations_per_second", "{:.1f} it/s"),
        ("loss", "loss {:.4f}"),
        ("psnr", "PSNR {:.2f} dB"),
        ("heldout_psnr", "held-out {:.2f} dB"),
    ):
        if state.get(name) is not None:
            parts.append(form.format(state[name]))
    count = state["gaussians"]
    parts.append(f"{count} Gaussian{'' if count == 1 else 's'}")
    for name, what in (("vram_allocated_gb", "VRAM"), ("rss_gb", "host memory")):
        if state.get(name) is not None:
            parts.append(f"{what} {state[name]:.2f} GiB")
    return ", ".join([*parts, *_left(state)])


def _every(seconds: float, show: Show) -> Show:
    """Pass on a state every few seconds, and always the last one and new held-out PSNRs; all have the latest PSNR."""
    last: List[Optional[float]] = [None]
    heldout: State = {}

    def sometimes(state: State) -> None:
        news = "heldout_psnr" in state
        heldout.update({"heldout_psnr": state["heldout_psnr"]} if news else {})
        now = time.monotonic()
        finished = state["iteration"] == state["iterations"]
        if last[0] is not None and now - last[0] < seconds and not finished and not news:
            return
        last[0] = now
        show(dict(heldout, **state))

    return sometimes


def _as_json(state: State) -> None:
    sys.stdout.write(json.dumps(dict(state, event="progress")) + "\n")
    sys.stdout.flush()


def _as_line(state: State) -> None:
    sys.stderr.write(f"{summary(state)}\n")


def _left(state: State) -> List[str]:
    """`2:05 left`, by the speed so far."""
    speed, todo = state["iterations_per_second"], state["iterations"] - state["iteration"]
    if not speed or not todo:
        return []
    minutes, seconds = divmod(round(todo / speed), 60)
    hours, minutes = divmod(minutes, 60)
    return [f"{hours}:{minutes:02d}:{seconds:02d} left" if hours else f"{minutes}:{seconds:02d} left"]


def _rich_console() -> Any:
    """rich's console for standard error, or None if rich is not installed (it is optional)."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(stderr=True)
