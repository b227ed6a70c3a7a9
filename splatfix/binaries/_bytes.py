"""Bounded reading: every access to a file goes through a `Reader`, which cannot look past the end."""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from splatfix.binaries.model import BinaryError

# Read at once: large enough that the calls cost nothing, small enough that a forged count costs no memory.
_CHUNK = 1 << 16


class Reader:
    """The bytes of a file, at hand or mapped; raises `BinaryError` for any read that does not lie wholly inside."""

    __slots__ = ("buffer", "size")

    def __init__(self, buffer: bytes | mmap.mmap) -> None:
        self.buffer, self.size = buffer, len(buffer)

    def require(self, offset: int, length: int, part: str) -> None:
        """Check that `part` (named in the error) lies inside the file."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise BinaryError(
                f"{part} at offset {offset:#x} ({length} bytes) reaches past the end of the file ({self.size} bytes):"
                " the file is truncated or damaged"
            )

    def unpack(self, layout: struct.Struct, offset: int, part: str) -> tuple[Any, ...]:
        return layout.unpack(self.take(offset, layout.size, part))

    def records(self, layout: struct.Struct, offset: int, count: int, part: str) -> Iterator[tuple[Any, ...]]:
        """Decode `count` records that follow one another, a block at a time, so that memory stays small."""
        self.require(offset, layout.size * count, part)
        block = max(1, _CHUNK // layout.size)
        for first in range(0, count, block):
            here = offset + first * layout.size
            yield from layout.iter_unpack(self.take(here, min(block, count - first) * layout.size, part))

    def take(self, offset: int, length: int, part: str) -> bytes:
        """Copy `length` bytes out."""
        self.require(offset, length, part)
        return self.buffer[offset : offset + length]

    def craw(self, offset: int, part: str, limit: int = 4096, end: int | None = None) -> bytes:
        """A zero-terminated string of at most `limit` bytes that ends before `end` (default: the file's end)."""
        end = self.size if end is None else min(end, self.size)
        if not 0 <= offset < end:
            raise BinaryError(f"{part} at offset {offset:#x} lies outside its string table")
        stop = self.buffer.find(b"\0", offset, min(offset + limit + 1, end))
        if stop < 0:
            raise BinaryError(f"{part} at offset {offset:#x} has no end within {limit} bytes")
        return self.buffer[offset:stop]

    def find(self, needle: bytes, start: int, end: int) -> int:
        """Offset of the first `needle` inside [start, end), or -1."""
        return self.buffer.find(needle, start, min(end, self.size))

    def skip_zeros(self, offset: int, end: int) -> int:
        """Offset of the first byte at or after `offset` that is not zero, or `end`."""
        while offset < end:
            chunk = self.take(offset, min(_CHUNK, end - offset), "padding")
            rest = chunk.lstrip(b"\0")
            if rest:
                return offset + len(chunk) - len(rest)
            offset += len(chunk)
        return end


def decode(raw: bytes) -> str:
    """Text of a name in a binary; bytes that are not UTF-8 become `\\xNN`, so that the result always fits JSON."""
    return raw.decode("utf-8", "backslashreplace")


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Reader]:
    """Map a regular file into memory for the duration of a `with` block.

    Readahead is switched off where the system allows it: a walk over headers touches a few pages of a huge file.
    """
    name = os.fspath(path)
    try:
        # stat first: opening a named pipe or a device could block for ever
        status = os.stat(name)  # noqa: PTH116 - a str path stays a str path
        if not stat.S_ISREG(status.st_mode):
            raise BinaryError(f"{name}: not a regular file")
        if not status.st_size:
            raise BinaryError(f"{name}: an empty file")
        with open(name, "rb") as handle:  # noqa: PTH123 - the same
            mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise BinaryError(f"{name}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # os.stat's word for a name with a NUL in it
        raise BinaryError(f"{name!r}: cannot be read: {error}") from error
    with mapped:
        if hasattr(mmap, "MADV_RANDOM"):
            mapped.madvise(mmap.MADV_RANDOM)
        yield Reader(mapped)
