"""Work in a copy of this process that can be left behind: what hangs in the kernel (a driver, a dead network disk) hears no
signal, not even KILL, and a thread that hangs there keeps its process from ending."""

import atexit
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress

_BLOCK = 1 << 16


def in_copy(work: Callable[[], str], seconds: float) -> str:
    """What ``work`` gives, done in a copy of this process, which must have no threads yet.

    Raises:
        TimeoutError: it was not done in time; the copy and its children were killed, and are not waited for.
        ChildProcessError: the copy ended without an answer.
    """
    until = time.monotonic() + seconds
    reading, writing = os.pipe()
    copy = os.fork()
    if copy == 0:
        os.close(reading)
        _do(work, writing)
    os.close(writing)
    try:
        return _answer(reading, until)
    finally:
        os.close(reading)
        with suppress(ProcessLookupError):
            os.kill(copy, signal.SIGKILL)
        _reap(copy)


def _do(work: Callable[[], str], writing: int) -> None:
    """Never returns: what called :func:`in_copy` goes on in the other process alone."""
    code = 1
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.setsid()  # a signal for the terminal's programs is the other process's to hear
        # who reads what the other process says waits until nobody has its pipe any more
        for handle in range(3):
            os.dup2(nothing, handle)
        atexit._clear()  # what was registered before is not this copy's to undo
        answer = work().encode()
        atexit._run_exitfuncs()
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer + b"\0")
        code = 0
    finally:
        os._exit(code)


def _answer(reading: int, until: float) -> str:
    blocks = []
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise TimeoutError
        block = os.read(reading, _BLOCK)
        if not block:
            break
        blocks.append(block)
    text = b"".join(blocks)
    if not text.endswith(b"\0"):
        raise ChildProcessError("it ended without an answer")
    return text[:-1].decode()


def _reap(copy: int) -> None:
    """One that was killed is gone in a moment, but for what hangs in the kernel."""
    for _ in range(100):
        if os.waitpid(copy, os.WNOHANG) != (0, 0):
            return
        time.sleep(0.001)
