"""What other programs say, within limits: lines as they come, a log that ends."""

import codecs
import io
from collections.abc import Iterable, Iterator
from typing import IO

from splatfix.core.limits import LONGEST_OUTPUT_LINE, MOST_ANSWER, MOST_LOG


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
    """Lines in memory, :data:`MOST_ANSWER` characters in all: of more, those in the middle go."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._size = 0

    def add(self, line: str) -> None:
        self.lines.append(line)
        self._size += len(line)
        while self._size > MOST_ANSWER and len(self.lines) > 1:
            self._size -= len(self.lines.pop(len(self.lines) // 2))


def lines(blocks: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a text, each with its newline; of an overlong one its beginning."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    held = ""
    for block in blocks:
        *complete, held = (held + decoder.decode(block)).split("\n")
        yield from (f"{line[:LONGEST_OUTPUT_LINE]}\n" for line in complete)
        held = held[:LONGEST_OUTPUT_LINE]
    held += decoder.decode(b"", final=True)
    if held:
        yield held
