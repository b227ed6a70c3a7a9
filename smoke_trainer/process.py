"""The process of a run: Ctrl-C, and a closed pipe on standard output."""

from __future__ import annotations

import signal
import threading
from typing import Any


class GracefulInterrupt:
    """A context in which the first SIGINT sets `requested`; a second one raises KeyboardInterrupt, as usual."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None

    def __enter__(self) -> GracefulInterrupt:
        # Python lets only the main thread handle signals; elsewhere nothing changes.
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: Any) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def end_with_the_pipe() -> None:
    """End without a word, as other programs do, where the reader of standard output has gone (`... | head`)."""
    if hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
