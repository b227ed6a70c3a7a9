"""What other programs say, within limits: pipes read together, lines as they come, a log that ends."""

import codecs
import io
import os
import queue
import selectors
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO

from splatfix.core.limits import LONGEST_OUTPUT_LINE, MOST_ANSWER, MOST_LOG

SLICE_S = 0.1
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


class Pipes:
    """Pipes, of which nothing was read before, read together.

    Args:
        goes_on: asked between blocks; False ends the reading.
        by_threads: with a thread for each pipe: for Windows, where pipes cannot be waited for.
    """

    def __init__(
        self, pipes: Sequence[IO[bytes]], goes_on: Callable[[], bool], *, by_threads: bool = os.name == "nt"
    ) -> None:
        self.at_end = False
        """All of them came to their end."""
        self._pipes, self._goes_on = pipes, goes_on
        self._receive = _by_threads if by_threads else _by_turns

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield each block with the number of its pipe; an empty one for its end."""
        pending = len(self._pipes)
        for received in self._receive(self._pipes):
            for number, block in received:
                pending -= not block
                yield number, block
            self.at_end = not pending
            if self.at_end or not self._goes_on():
                return

    def texts(self) -> list[str]:
        """Return the text of each pipe.

        Raises:
            TooMuch: one of them is longer than :data:`MOST_ANSWER` bytes.
        """
        contents = [bytearray() for _ in self._pipes]
        for number, block in self.blocks():
            contents[number] += block
            if len(contents[number]) > MOST_ANSWER:
                raise TooMuch
        texts = [content.decode("utf-8", "replace") for content in contents]
        return [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]


def lines(blocks: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a text, and parts of overlong ones; the end of each is a newline."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    held = ""
    for block in blocks:
        held += decoder.decode(block, final=not block)
        start = 0
        while True:
            end = held.find("\n", start, start + LONGEST_OUTPUT_LINE) + 1
            if not end and len(held) - start < LONGEST_OUTPUT_LINE:
                break
            end = end or start + LONGEST_OUTPUT_LINE
            yield held[start:end]
            start = end
        held = held[start:]
    if held:
        yield held


def _by_turns(pipes: Sequence[IO[bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    with selectors.DefaultSelector() as selector:
        for number, pipe in enumerate(pipes):
            selector.register(pipe.fileno(), selectors.EVENT_READ, number)
        while True:
            received = []
            for key, _ in selector.select(SLICE_S):
                block = os.read(key.fd, 1 << 16)
                if not block:
                    selector.unregister(key.fd)
                received.append((key.data, block))
            yield received


def _by_threads(pipes: Sequence[IO[bytes]]) -> Iterator[list[tuple[int, bytes]]]:
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
    while True:
        received = []
        with suppress(queue.Empty):
            received.append(read.get(timeout=SLICE_S))
        yield received
