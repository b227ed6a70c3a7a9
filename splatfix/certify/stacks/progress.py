"""How far a stack's own trainer is while it runs, by the lines that its observer writes (``metrics.jsonl``)."""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from splatfix.core.errors import SplatfixError
from splatfix.core.limits import MOST_TEXT
from splatfix.core.threads import start

EVERY = 1.0
"""Seconds between two looks."""
RECENT = 20
"""Iterations that the speed is a mean of."""


class Lines:
    """What a growing file of JSON lines says of a training."""

    def __init__(self, path: Path, iterations: int) -> None:
        self._path, self._iterations = path, iterations
        self._offset = 0
        self._times: deque[float] = deque(maxlen=RECENT)

    def latest(self) -> dict[str, Any]:
        """The progress object of the last whole line, as :mod:`splatfix.certify.progress` words it; {} where none is new."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read(MOST_TEXT)
        except OSError:  # not yet there
            return {}
        whole, end, _ = content.rpartition(b"\n")
        self._offset += len(whole) + len(end)
        state: dict[str, Any] = {}
        for line in whole.splitlines():
            row = json.loads(line)
            if row["iteration"] > 1:  # the first has waited for the scene
                self._times.append(sum(row["ms"].values()) / 1000)
            state = {
                "iteration": row["iteration"],
                "iterations": self._iterations,
                "loss": row["loss"],
                "gaussians": row["gaussians"],
                "rss_gb": row["rss_gb"],
                "vram_allocated_gb": row.get("vram_allocated_gb"),
            }
        if state and (spent := sum(self._times)) > 0:
            state["iterations_per_second"] = len(self._times) / spent
        return state


@contextmanager
def following(
    path: Path, iterations: int, tell: Callable[[Mapping[str, Any]], None], every: float = EVERY
) -> Iterator[None]:
    """Meanwhile ``tell`` how far it is, from a thread; one that raises is told no more, and the training goes on."""
    over, lines = threading.Event(), Lines(path, iterations)

    def follow() -> None:
        while not over.wait(every):
            if state := lines.latest():
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
