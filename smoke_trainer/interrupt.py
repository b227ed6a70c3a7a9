"""Ctrl-C as a wish: the first one ends training after the iteration in progress, so that the checkpoint is whole."""

from __future__ import annotations

import signal
import threading
from typing import Any


class StopWish:
    """A context in which the first SIGINT sets `wished`; a second one stops at once, as usual."""

    def __init__(self) -> None:
        self.wished = False
        self._before: Any = None

    def __enter__(self) -> StopWish:
        # Python lets only the main thread handle signals; elsewhere nothing changes.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: Any) -> None:
        if self.wished:
            raise KeyboardInterrupt
        self.wished = True
