"""Native members of a wheel (or any zip): read in place where stored, through a temporary file where deflated."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from splatfix.binaries import _zip
from splatfix.binaries._bytes import Reader, opened
from splatfix.binaries.folder import is_native_name
from splatfix.binaries.model import Binary, BinaryError
from splatfix.binaries.reader import parse

MAGIC = _zip.MAGIC

OnError = Callable[[str, BinaryError], None]
"""Told the path and the error of each file that could not be read, so that the others still are."""

_MAX_LIBRARIES = 20_000


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
    found: list[Binary] = []
    listing = _zip.members(reader, lambda member: is_native_name(member.rpartition("/")[2]))
    while True:
        try:
            member = next(listing, None)
        except BinaryError as error:
            raise BinaryError(f"{name}: {error}") from error
        if member is None:
            return tuple(found)
        if len(found) == _MAX_LIBRARIES:
            raise BinaryError(
                f"{name}: more than {_MAX_LIBRARIES} libraries in one archive: not a real wheel"
            )
        label = f"{name}!{member.name}"
        try:
            found.append(_read_member(reader, member, label))
        except BinaryError as error:
            if on_error is None:
                raise
            on_error(label, error)


def _read_member(reader: Reader, member: _zip.Member, label: str) -> Binary:
    try:
        if not member.size:
            raise BinaryError("an empty file")
        if member.method == _zip.STORED:
            start = _zip.data_start(reader, member)
            reader.require(start, member.size, "a zip member")
            return parse(Reader(reader.buffer, reader.base + start, member.size), label)
        return _read_unpacked(reader, member, label)
    except BinaryError as error:
        # what `parse` says already begins with the label
        raise error if str(error).startswith(label) else BinaryError(f"{label}: {error}") from error


def _read_unpacked(reader: Reader, member: _zip.Member, label: str) -> Binary:
    try:
        # mkstemp and not a context-managed temporary file: Windows cannot open one of those a second time
        handle, temporary = tempfile.mkstemp(prefix="splatfix-member-")
        try:
            with os.fdopen(handle, "wb") as out:
                _zip.unpack(reader, member, out)
            with opened(temporary) as unpacked:
                return parse(unpacked, label)
        finally:
            os.unlink(temporary)  # noqa: PTH108 - a str path
    except OSError as error:
        raise BinaryError(f"cannot be unpacked for reading: {error}") from error
