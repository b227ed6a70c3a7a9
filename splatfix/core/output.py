"""What other programs say, within limits: a log that ends, the beginning and the end of endless lines, two pipes read at once."""

import os
import queue
import selectors
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO

from splatfix.core.limits import MOST_ANSWER, MOST_LOG

_SLICE_S = 0.5
"""A signal that comes just before the main thread blocks is heard only when it wakes."""


class OutputLog:
    """Lines for a file, of which the first :data:`MOST_LOG` characters are kept."""

    def __init__(self, sink: IO[str]) -> None:
        self._sink = sink
        self._left = MOST_LOG

    def write(self, line: str) -> None:
        if self._left <= 0:
            return
        self._left -= len(line)
        self._sink.write(line)
        if self._left <= 0:
            self._sink.write(f"\n(what was said after {MOST_LOG >> 20} MiB is not kept)\n")
        self._sink.flush()


class KeptLines:
    """Lines in memory: the first and the last ones, :data:`MOST_ANSWER` characters in all."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._last: deque[str] = deque()
        self._size = 0

    def add(self, line: str) -> None:
        """Take one more; of those in the middle one may go for it."""
        self._size += len(line)
        if self._size <= MOST_ANSWER // 2:
            self._first.append(line)
        else:
            self._last.append(line)
        while self._size > MOST_ANSWER and self._last:
            self._size -= len(self._last.popleft())

    def all(self) -> list[str]:
        return [*self._first, *self._last]


class TooMuch(Exception):
    """A program says more than is read."""


def read_pipes(
    pipes: Sequence[IO[str]], seconds: float, *, by_threads: bool = os.name == "nt"
) -> tuple[list[str], bool]:
    """The text of each pipe, of which nothing was read before, and whether all came to their end in time.

    Args:
        by_threads: with a thread for each pipe: for Windows, where pipes cannot be waited for.

    Raises:
        TooMuch: one of them is longer than :data:`MOST_ANSWER` bytes.
    """
    blocks: list[list[bytes]] = [[] for _ in pipes]
    sizes = [0] * len(pipes)
    read = _read_by_threads if by_threads else _read_by_turns
    for number, block in read(pipes, time.monotonic() + seconds):
        blocks[number].append(block)
        sizes[number] += len(block)
        if sizes[number] > MOST_ANSWER:
            raise TooMuch
    texts = [b"".join(parts).decode("utf-8", "replace") for parts in blocks]
    is_whole = all(parts and not parts[-1] for parts in blocks)
    return [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts], is_whole


def _read_by_turns(pipes: Sequence[IO[str]], until: float) -> Iterator[tuple[int, bytes]]:
    """Each block with the number of its pipe; an empty one for the end."""
    with selectors.DefaultSelector() as selector:
        for number, pipe in enumerate(pipes):
            selector.register(pipe.fileno(), selectors.EVENT_READ, number)
        while selector.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(min(left, _SLICE_S)):
                block = os.read(key.fd, 1 << 16)
                if not block:
                    selector.unregister(key.fd)
                yield key.data, block


def _read_by_threads(pipes: Sequence[IO[str]], until: float) -> Iterator[tuple[int, bytes]]:
    read: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()

    def pass_on(number: int, descriptor: int) -> None:
        with open(descriptor, "rb", buffering=0) as pipe:
            block = b"."
            while block:
                block = pipe.read(1 << 16)
                read.put((number, block))

    for number, pipe in enumerate(pipes):
        # a descriptor of its own: the caller closes the pipe when the time is over, and the next child's pipe gets its number
        own = os.dup(pipe.fileno())
        threading.Thread(target=pass_on, args=(number, own), daemon=True).start()
    pending = len(pipes)
    while pending and (left := until - time.monotonic()) > 0:
        with suppress(queue.Empty):
            number, block = read.get(timeout=min(left, _SLICE_S))
            pending -= not block
            yield number, block
