"""Reads the lines of a build as they come: what was compiled, how much is left, and about how long that takes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

_NINJA = re.compile(r"^\s*\[(\d+)/(\d+)\]")
_BEGINS = re.compile(r"^\s*building '([^']+)' extension")
_COMPILING = re.compile(r"\s-c (?:-\S+ )*(\S+\.(?:cu|cpp|cc|cxx|c))\b")


class BuildLines:
    """Turns lines of a build's log into a few words for a person.

    ninja names a file when it is done with it (its output is no terminal), distutils before it starts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` in seconds; the build starts now."""
        self._clock = clock
        self._started = clock()

    def says(self, line: str) -> str | None:
        """What this line tells; None for most lines."""
        file = _COMPILING.search(line)
        if file:
            name = file.group(1).replace("\\", "/").rsplit("/", 1)[-1]
            count = _NINJA.match(line)
            return f"compiled {name}{self._left(*map(int, count.groups()))}" if count else f"compiling {name}"
        # before ninja is done with the first file of many minutes
        if begins := _BEGINS.match(line):
            return f"compiling the sources of {begins.group(1)}"
        return "linking" if " -shared " in line else None

    def _left(self, done: int, total: int) -> str:
        """How far it is, and what the rest will take if it goes on as before."""
        if not 0 < done < total:
            return f" ({done} of {total})"
        seconds = (self._clock() - self._started) / done * (total - done)
        return f" ({done} of {total}, {_about(seconds)} more)"


def _about(seconds: float) -> str:
    return f"about {max(5, round(seconds / 5) * 5)} s" if seconds < 90 else f"about {seconds / 60:.0f} min"
