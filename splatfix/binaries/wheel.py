"""Native members of a wheel (or any zip), each unpacked into a temporary file for as long as it is read."""

from __future__ import annotations

import io
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from splatfix.binaries._bytes import Reader, opened
from splatfix.binaries.model import Binary, BinaryError
from splatfix.binaries.reader import is_native_name, parse
from splatfix.core.limits import MOST_LIBRARIES
from splatfix.core.scratch import process_folder

OnError = Callable[[str, BinaryError], None]
"""Told the path and the error of each file that could not be read, so that the others still are."""

MAGIC = b"PK\x03\x04"
_CHUNK = 1 << 18
# Bounds against forged archives: what zipfile reads at once is a directory, of some 7 MB in a wheel of 60,000 members.
_MOST_AT_ONCE = 1 << 24
_MAX_MEMBER = 16 << 30
_DAMAGE = (BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError, OverflowError)
"""What zipfile makes of an archive that is damaged, or encrypted."""


class _File(io.FileIO):
    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MOST_AT_ONCE:
            raise BinaryError(f"a directory of {size} bytes: not a real wheel")
        return super().read(-1 if size is None else size) or b""


@contextmanager
def opened_wheel(path: str | os.PathLike[str]) -> Iterator[ZipFile]:
    """Open a wheel for the duration of a `with` block; raises `BinaryError` for what is none."""
    with ExitStack() as stack:
        try:
            if not Path(path).is_file():  # opening a named pipe or a device could block for ever
                raise BadZipFile("not a regular file")
            archive = ZipFile(stack.enter_context(_File(path)))
        except _DAMAGE as error:
            raise BinaryError(f"{path}: not a zip archive, or a damaged one: {error}") from error
        yield archive


def native_members(archive: ZipFile) -> list[ZipInfo]:
    """Return the native modules and shared libraries in the archive's order; raises `BinaryError` for too many."""
    natives = [item for item in archive.infolist() if is_native_name(item.filename.rpartition("/")[2])]
    if len(natives) > MOST_LIBRARIES:
        raise BinaryError(f"more than {MOST_LIBRARIES} libraries in one archive: not a real wheel")
    return natives


def read_wheel(path: str | os.PathLike[str], *, on_error: OnError | None = None) -> tuple[Binary, ...]:
    """Every native module and shared library in a .whl or .zip, in the archive's order.

    The path of each is `wheel!member`, offsets count from the member's start. Raises `BinaryError` for a damaged
    archive, and for a damaged member unless `on_error` is given, which then hears of it instead.
    """
    binaries: list[Binary] = []
    with opened_wheel(path) as archive:
        for member in native_members(archive):
            label = f"{os.fspath(path)}!{member.filename}"
            try:
                with opened_member(archive, member) as contents:
                    binaries.append(parse(contents, label))
            except BinaryError as error:
                if on_error is None:
                    raise
                on_error(label, error)
    return tuple(binaries)


@contextmanager
def opened_member(archive: ZipFile, member: ZipInfo) -> Iterator[Reader]:
    """The contents of a member, for the duration of a `with` block; raises `BinaryError`."""
    # a file and not memory: torch's libraries unpack to a gigabyte, of which a few pages are read; mkstemp and not a
    # context-managed temporary file, because Windows cannot open one of those a second time
    handle, name = tempfile.mkstemp(dir=process_folder())
    try:
        with os.fdopen(handle, "wb") as out:
            try:
                if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                    raise BinaryError(f"packed by method {member.compress_type}, which wheels do not use")
                if not member.file_size:
                    raise BinaryError("an empty file")
                if member.file_size > _MAX_MEMBER:
                    raise BinaryError(f"claims to unpack to {member.file_size} bytes: not a real library")
                with archive.open(member) as packed:
                    shutil.copyfileobj(packed, out, _CHUNK)
                if out.tell() != member.file_size:
                    raise BinaryError(f"unpacks to {out.tell()} bytes, not the {member.file_size} recorded")
            except (BinaryError, *_DAMAGE) as error:
                raise BinaryError(f"{archive.filename}!{member.filename}: {error}") from error
        with opened(name) as contents:
            yield contents
    finally:
        Path(name).unlink()
