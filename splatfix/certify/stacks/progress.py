"""How far a stack's own trainer is while it runs, by the lines that its observer writes (``metrics.jsonl``)."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from splatfix.core.errors import SplatfixError
from splatfix.core.threads import start

EVERY = 1.0
"""Seconds between two looks."""
RECENT = 20
"""Iterations that the speed is a mean of."""
_TAIL = 1 << 16
"""Bytes that hold as many lines, of some hundred bytes each."""


def latest(path: Path, iterations: int) -> dict[str, Any]:
    """Return the progress object of the last whole line, as :mod:`splatfix.certify.progress` words it; {} where there is none."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            file.seek(max(0, size - _TAIL))
            lines = file.read().split(b"\n")[:-1]
    except OSError:  # not yet there
        return {}
    if size > _TAIL:
        del lines[0]  # the end of one
    rows = [json.loads(line) for line in lines[-RECENT:]]
    if not rows:
        return {}
    state = {"iterations": iterations}
    for name in ("iteration", "loss", "gaussians", "rss_gb", "vram_allocated_gb"):
        state[name] = rows[-1].get(name)
    # the first has waited for the scene
    spent = [sum(row["ms"].values()) / 1000 for row in rows if row["iteration"] > 1]
    if sum(spent) > 0:
        state["iterations_per_second"] = len(spent) / sum(spent)
    return state


@contextmanager
def following(
    path: Path, iterations: int, tell: Callable[[Mapping[str, Any]], None], every: float = EVERY
) -> Iterator[None]:
    """Meanwhile ``tell`` how far it is, from a thread; one that raises is told no more, and the training goes on."""
    over = threading.Event()

    def follow() -> None:
        told: dict[str, Any] = {}
        while not over.wait(every):
            state = latest(path, iterations)
            if state == told:
                continue
            told = state
            try:
                tell(state)
            except (SplatfixError, OSError):
                return  # such as a full disk: who writes the last report says so

    thread = threading.Thread(target=follow, name="stack-progress", daemon=True)
    start(thread)
    try:
        yield
    finally:
        over.set()
        if thread.is_alive():
            thread.join()
