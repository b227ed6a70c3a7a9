"""Bounded reading: every access to a file goes through a `Reader`, which cannot look past the end."""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from splatfix.binaries.model import BinaryError


class Buffer(Protocol):
    """Bytes, a memory map, or a file elsewhere of which parts are fetched as they are looked at."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes: ...

    def find(self, needle: bytes, start: int, end: int, /) -> int:
        """Offset of the first `needle` inside [start, end), or -1."""
        ...


# Read at once: large enough that the calls cost nothing, small enough that a forged count costs no memory.
_CHUNK = 1 << 16


class Reader:
    """A window of `size` bytes at `base` of a buffer; offsets are counted from the window's start.

    Raises `BinaryError` for any read that does not lie wholly inside the window.
    """

    __slots__ = ("base", "buffer", "size")

    def __init__(self, buffer: Buffer, base: int = 0, size: int | None = None) -> None:
        """Look at `buffer[base : base + size]` (by default: up to its end)."""
        available = len(buffer) - base
        if size is None:
            size = available
        self.buffer, self.base, self.size = buffer, base, size
        if base < 0 or self.size < 0 or self.size > available:
            raise BinaryError(
                f"a window of {self.size} bytes at offset {base:#x} reaches past the end of the file"
            )

    def require(self, offset: int, length: int, part: str) -> None:
        """Check that `part` (named in the error) lies inside the window."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise BinaryError(
                f"{part} at offset {offset:#x} ({length} bytes) reaches past the end of the file ({self.size} bytes):"
                " the file is truncated or damaged"
            )

    def unpack(self, layout: struct.Struct, offset: int, part: str) -> tuple[Any, ...]:
        self.require(offset, layout.size, part)
        start = self.base + offset
        return layout.unpack(self.buffer[start : start + layout.size])

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
        start = self.base + offset
        return self.buffer[start : start + length]

    def craw(self, offset: int, part: str, limit: int = 4096, end: int | None = None) -> bytes:
        """A zero-terminated string of at most `limit` bytes that ends before `end` (default: the window's end)."""
        end = self.size if end is None else min(end, self.size)
        if not 0 <= offset < end:
            raise BinaryError(f"{part} at offset {offset:#x} lies outside its string table")
        start = self.base + offset
        stop = self.buffer.find(b"\0", start, min(start + limit + 1, self.base + end))
        if stop < 0:
            raise BinaryError(f"{part} at offset {offset:#x} has no end within {limit} bytes")
        return self.buffer[start:stop]

    def find(self, needle: bytes, start: int, end: int) -> int:
        """Offset of the first `needle` inside [start, end), or -1."""
        position = self.buffer.find(needle, self.base + start, self.base + min(end, self.size))
        return position if position < 0 else position - self.base

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
