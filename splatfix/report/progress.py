"""Progress of long work, on standard error: a live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_PLAIN_EVERY = 15.0  # seconds between two lines where there is no terminal


@contextmanager
def training(console: Console) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
    """A callback for the certification: what runs now, and the trainer's own progress object."""
    if not console.is_terminal:
        yield _plain(console)
        return
    columns = (
        TextColumn("{task.description:<12}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[words]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(where: str, state: Mapping[str, Any]) -> None:
            if where not in tasks:
                for task in tasks.values():
                    bars.stop_task(task)
                tasks[where] = bars.add_task(where, total=None, words="")
            if state.get("iterations"):
                bars.update(
                    tasks[where], total=state["iterations"], completed=state["iteration"], words=words(state)
                )

        yield show


def words(state: Mapping[str, Any]) -> str:
    """``120/200, 4.1 it/s, loss 0.0832, 5312 Gaussians``."""
    parts = [f"{state['iteration']}/{state['iterations']}"]
    if state.get("seconds"):
        parts.append(f"{state['iteration'] / state['seconds']:.1f} it/s")
    if state.get("loss") is not None:
        parts.append(f"loss {state['loss']:.4f}")
    if state.get("heldout_psnr") is not None:
        parts.append(f"held-out {state['heldout_psnr']:.2f} dB")
    if state.get("gaussians") is not None:
        parts.append(f"{state['gaussians']} Gaussians")
    return ", ".join(parts)


def _plain(console: Console) -> Callable[[str, Mapping[str, Any]], None]:
    last: dict[str, float] = {}

    def show(where: str, state: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if where not in last:
            console.print(f"{where} ...", markup=False)
            last[where] = now
        elif state.get("iterations") and now - last[where] >= _PLAIN_EVERY:
            console.print(f"{where}: {words(state)}", markup=False, soft_wrap=True)
            last[where] = now

    return show
