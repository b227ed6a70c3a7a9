"""Threads, where any can be started: a container's limit of processes, or ``ulimit -v``, may leave no room for another."""

import threading


def start(thread: threading.Thread) -> bool:
    """Start it; False where it cannot be: who called does the work itself, or goes on without what only tells."""
    try:
        thread.start()
    except (RuntimeError, MemoryError):  # "can't start new thread"
        return False
    return True
