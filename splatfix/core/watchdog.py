"""Ends the descendants of a splatfix that was killed. Also a program of its own, which splatfix starts before its first child.

Why not otherwise: PR_SET_PDEATHSIG reaches direct children only, comes when the thread that started them ends, and needs
code between fork and exec, which is unsafe beside threads. A process group or session is not enough: ninja gives every
compiler a group of its own. So descendants are known by a variable that all of them inherit.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "SPLATFIX_CHILD"
"""Variable in the environment of every descendant: the splatfix it belongs to, and the number of the child."""


def end_marked(mark: str) -> int:
    """Kill every process whose mark is ``mark`` or, where that ends with a colon, begins so; returns how many (Linux)."""
    marked = f"\0{MARK}={mark}{'' if mark.endswith(':') else chr(0)}".encode()
    killed: set[int] = set()
    while living := _marked(marked) - killed:
        for number in living:
            with suppress(OSError):
                os.kill(number, signal.SIGKILL)
        killed |= living  # one of them may have started another since it was looked at
    return len(killed)


def _marked(mark: bytes) -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if mark in b"\0" + path.read_bytes():
                found.add(int(path.parent.name))
    return found - {os.getpid()}


if __name__ == "__main__":
    # Wait on standard input for the end of the splatfix whose mark the first argument is: a byte before a proper one.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not os.read(0, 1):
        quiet = 0
        while quiet < 5:  # a child that was just being started gets its mark in a moment
            quiet = 0 if end_marked(sys.argv[1]) else quiet + 1
            time.sleep(0.1)
