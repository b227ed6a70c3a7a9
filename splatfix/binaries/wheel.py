"""Native members of a wheel (or any zip): read in place where stored, through a temporary file where deflated.

Stored and deflated members, with ZIP64: all that the wheel format uses. Records after PKWARE's APPNOTE.TXT. Not by
`zipfile`: that keeps an object for each member, which takes two to five times as long for a wheel of 60,000 (measured), and a
forged directory makes it keep millions; here only native members are kept, and stored ones are read in place.
"""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO

from msgspec import Struct

from splatfix.binaries._bytes import Reader, opened
from splatfix.binaries.model import Binary, BinaryError
from splatfix.binaries.reader import is_native_name, parse
from splatfix.core.limits import MOST_LIBRARIES
from splatfix.core.scratch import process_folder

OnError = Callable[[str, BinaryError], None]
"""Told the path and the error of each file that could not be read, so that the others still are."""


MAGIC = b"PK\x03\x04"
STORED, DEFLATED = 0, 8

_END_MAGIC = b"PK\x05\x06"
_END = struct.Struct("<4s4HIIH")
_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_CENTRAL = struct.Struct("<4s4xHH4xIIIHHH8xI")
_LOCAL = struct.Struct("<4s22xHH")
_MAX_COMMENT = 0xFFFF
_ENCRYPTED, _UTF8 = 0x1, 0x800
_ZIP64_FIELD = 1

_CHUNK = 1 << 18
# Bounds against forged archives: deflate never gains more than a factor of 1032.
_MAX_RECORDS = 2_000_000
_MAX_GAIN = 1_040
_MAX_MEMBER = 16 << 30


def read_wheel(path: str | os.PathLike[str], *, on_error: OnError | None = None) -> tuple[Binary, ...]:
    """Every native module and shared library in a .whl or .zip, in the archive's order.

    The path of each is `wheel!member`, offsets count from the member's start. Raises `BinaryError` for a damaged
    archive, and for a damaged member unless `on_error` is given, which then hears of it instead.
    """
    name = os.fspath(path)
    with opened(path) as reader:
        return parse_wheel(reader, name, on_error=on_error)


def parse_wheel(reader: Reader, name: str, *, on_error: OnError | None = None) -> tuple[Binary, ...]:
    """As `read_wheel`, from bytes that are already at hand; `name` is only a label."""
    binaries: list[Binary] = []
    try:
        natives = members(reader, lambda member: is_native_name(member.rpartition("/")[2]))
        selected = list(islice(natives, MOST_LIBRARIES + 1))
        if len(selected) > MOST_LIBRARIES:
            raise BinaryError(f"more than {MOST_LIBRARIES} libraries in one archive: not a real wheel")
    except BinaryError as error:
        raise BinaryError(f"{name}: {error}") from error
    for member in selected:
        label = f"{name}!{member.name}"
        try:
            with opened_member(reader, member) as contents:
                binaries.append(parse(contents, label))
        except BinaryError as error:
            named = error
            if not str(error).startswith(label):  # what `parse` says already begins with it
                named = BinaryError(f"{label}: {error}")
            if on_error is None:
                raise named  # noqa: B904 (it may be the error itself)
            on_error(label, named)
    return tuple(binaries)


@contextmanager
def opened_member(reader: Reader, member: Member) -> Iterator[Reader]:
    """The contents of a member, for the duration of a `with` block; raises `BinaryError`."""
    if not member.size:
        raise BinaryError("an empty file")
    if member.method == STORED:
        start = data_start(reader, member)
        reader.require(start, member.size, "a zip member")
        yield Reader(reader.buffer, reader.base + start, member.size)
        return
    # a file and not memory: torch's libraries unpack to a gigabyte, of which a few pages are read; mkstemp and not a
    # context-managed temporary file, because Windows cannot open one of those a second time
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=process_folder())
        with os.fdopen(handle, "wb") as out:
            unpack(reader, member, out)
        with opened(temporary) as unpacked:
            yield unpacked
    except OSError as error:
        raise BinaryError(f"cannot be unpacked for reading: {error}") from error
    finally:
        if temporary:
            os.unlink(temporary)  # noqa: PTH108 - a str path


class Member(Struct, frozen=True):
    """One file in the archive; `header` is the offset of its local header."""

    name: str
    method: int
    encrypted: bool
    crc: int
    packed_size: int
    size: int
    header: int


def members(reader: Reader, selected: Callable[[str], bool]) -> Iterator[Member]:
    """Members whose name is selected, in the directory's order; raises `BinaryError` for a damaged archive."""
    offset, count, shift = _directory(reader)
    if count > _MAX_RECORDS:
        raise BinaryError(f"the archive claims {count} members: not a real wheel")
    for _ in range(count):
        record = reader.unpack(_CENTRAL, offset, "zip directory")
        magic, flags, method, crc, packed, size, name_len, extra_len, comment_len, at = record
        if magic != b"PK\x01\x02":
            raise BinaryError(f"no zip directory record at offset {offset:#x}: the archive is damaged")
        raw = reader.take(offset + _CENTRAL.size, name_len, "a zip member's name")
        name = raw.decode("utf-8", "backslashreplace") if flags & _UTF8 else raw.decode("cp437")
        if selected(name):
            extra = reader.take(offset + _CENTRAL.size + name_len, extra_len, "a zip member's extra field")
            size, packed, at = _widened(extra, (size, packed, at))
            yield Member(name, method, bool(flags & _ENCRYPTED), crc, packed, size, at + shift)
        offset += _CENTRAL.size + name_len + extra_len + comment_len


def _directory(reader: Reader) -> tuple[int, int, int]:
    """(offset of the directory, number of records, bytes in front of the archive)."""
    lowest = max(0, reader.size - _END.size - _MAX_COMMENT)
    tail = reader.take(lowest, reader.size - lowest, "the archive's end")
    position = tail.rfind(_END_MAGIC)
    if position < 0:
        if reader.take(0, 2, "the archive's begin") != b"PK":
            raise BinaryError("not a zip archive")
        raise BinaryError("no zip directory at the end: the archive is truncated")
    end = lowest + position
    _, _, _, _, count, size, start, _ = reader.unpack(_END, end, "zip end record")
    if end >= _LOCATOR.size:
        locator = reader.unpack(_LOCATOR, end - _LOCATOR.size, "ZIP64 locator")
        if locator[0] == b"PK\x06\x07":
            end = end - _LOCATOR.size - _END64.size
            record = reader.unpack(_END64, end, "ZIP64 end record")
            if record[0] != b"PK\x06\x06":
                raise BinaryError(f"no ZIP64 end record at offset {end:#x}: the archive is damaged")
            count, size, start = record[7:]
    # where other data stands in front (a self-extracting file), offsets count from the archive's own start
    if start + size > end:
        raise BinaryError(
            f"the zip directory claims {size} bytes at offset {start:#x}: the archive is damaged"
        )
    return end - size, count, end - size - start


def _widened(extra: bytes, fields: tuple[int, int, int]) -> tuple[int, int, int]:
    """Replace those of (size, packed size, header offset) that did not fit 32 bits from the ZIP64 extra field."""
    if 0xFFFFFFFF not in fields:
        return fields
    offset = 0
    while offset + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, offset)
        body = extra[offset + 4 : offset + 4 + length]
        if kind == _ZIP64_FIELD:
            wide = iter(struct.unpack(f"<{len(body) // 8}Q", body[: len(body) // 8 * 8]))
            try:
                size, packed, at = (next(wide) if value == 0xFFFFFFFF else value for value in fields)
            except RuntimeError as error:  # fewer values than fields to fill
                raise BinaryError("a ZIP64 extra field is too short: the archive is damaged") from error
            return size, packed, at
        offset += 4 + length
    raise BinaryError("a zip member lacks its ZIP64 sizes: the archive is damaged")


def data_start(reader: Reader, member: Member) -> int:
    """Offset of a member's first byte; the local header's own field lengths count, not the directory's."""
    if member.encrypted:
        raise BinaryError("encrypted, cannot be read")
    magic, name_length, extra_length = reader.unpack(_LOCAL, member.header, "zip member header")
    if magic != MAGIC:
        raise BinaryError(f"no zip member at offset {member.header:#x}: the archive is damaged")
    return int(member.header + _LOCAL.size + name_length + extra_length)


def unpack(reader: Reader, member: Member, out: IO[bytes]) -> None:
    """Write a deflated member's contents to `out`; raises `BinaryError` where they are not what was promised."""
    if member.method != DEFLATED:
        raise BinaryError(f"packed by method {member.method}, which wheels do not use")
    if member.size > min(_MAX_MEMBER, member.packed_size * _MAX_GAIN + _CHUNK):
        raise BinaryError(
            f"claims to unpack from {member.packed_size} to {member.size} bytes: not a real library"
        )
    at = data_start(reader, member)
    reader.require(at, member.packed_size, "a zip member")
    end = at + member.packed_size
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    written = crc = 0
    pending = b""
    while not inflater.eof:
        if not pending:
            pending = reader.take(at, min(_CHUNK, end - at), "a zip member")
            at += len(pending)
        try:
            data = inflater.decompress(pending, _CHUNK)
        except zlib.error as error:
            raise BinaryError(f"cannot be unpacked: {error}") from error
        pending = inflater.unconsumed_tail
        written += len(data)
        if written > member.size or (not data and not pending and at >= end and not inflater.eof):
            break
        crc = zlib.crc32(data, crc)
        out.write(data)
    if written != member.size or crc != member.crc:
        raise BinaryError(
            f"unpacks to {written} bytes that are not the {member.size} recorded: the archive is damaged"
        )
