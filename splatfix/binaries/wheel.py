"""Native members of a wheel (or any zip): read in place where stored, through a temporary file where compressed."""

from __future__ import annotations

import lzma
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from typing import IO

from splatfix.binaries._bytes import Reader, opened
from splatfix.binaries.folder import is_native_name
from splatfix.binaries.model import Binary, BinaryError
from splatfix.binaries.reader import parse

OnError = Callable[[str, BinaryError], None]
"""Told the path and the error of each file that could not be read, so that the others still are."""

MAGIC = b"PK\x03\x04"
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_ENCRYPTED = 0x1
_COPY_CHUNK = 1 << 20
# No library on any index comes near these; they stop a small archive from filling the disk.
_MAX_MEMBER = 16 << 30
_MAX_MEMBERS = 100_000

# What zipfile and the decompressors raise for damaged or unsupported archives.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    NotImplementedError,
    RuntimeError,
    ValueError,
    EOFError,
    OSError,
    OverflowError,
    IndexError,
    KeyError,
)


def read_wheel(path: str | os.PathLike[str], *, on_error: OnError | None = None) -> tuple[Binary, ...]:
    """Every native module and shared library in a .whl or .zip, in the archive's order.

    The path of each is `wheel!member`, offsets count from the member's start. Raises `BinaryError` for a damaged
    archive, and for a damaged member unless `on_error` is given, which then hears of it instead.
    """
    name = os.fspath(path)
    found: list[Binary] = []
    with opened(path) as reader:
        try:
            archive = zipfile.ZipFile(name)
        except _ZIP_ERRORS as error:
            raise BinaryError(f"{name}: a damaged wheel or zip file: {error}") from error
        with archive:
            members = [
                info for info in archive.infolist() if is_native_name(info.filename.rpartition("/")[2])
            ]
            if len(members) > _MAX_MEMBERS:
                raise BinaryError(f"{name}: {len(members)} libraries in one archive: not a real wheel")
            for info in members:
                label = f"{name}!{info.filename}"
                try:
                    found.append(_read_member(reader, archive, info, label))
                except BinaryError as error:
                    if on_error is None:
                        raise
                    on_error(label, error)
    return tuple(found)


def _read_member(reader: Reader, archive: zipfile.ZipFile, info: zipfile.ZipInfo, label: str) -> Binary:
    if info.flag_bits & _ENCRYPTED:
        raise BinaryError(f"{label}: encrypted, cannot be read")
    if info.compress_type == zipfile.ZIP_STORED:
        try:
            window = Reader(reader.buffer, _data_start(reader, info), info.file_size)
        except BinaryError as error:
            raise BinaryError(f"{label}: {error}") from error
        return parse(window, label)
    if info.file_size > _MAX_MEMBER:
        raise BinaryError(f"{label}: claims {info.file_size} bytes unpacked: not a real library")
    # mkstemp and not a context-managed temporary file: Windows cannot open one of those a second time
    handle, temporary = tempfile.mkstemp(prefix="splatfix-member-")
    try:
        with os.fdopen(handle, "wb") as out:
            _unpack(archive, info, out, label)
        with opened(temporary) as unpacked:
            return parse(unpacked, label)
    except OSError as error:
        raise BinaryError(f"{label}: cannot be unpacked for reading: {error}") from error
    finally:
        os.unlink(temporary)  # noqa: PTH108 - a str path


def _data_start(reader: Reader, info: zipfile.ZipInfo) -> int:
    """Offset of a stored member's first byte; the local header's own field lengths count, not the directory's."""
    magic, name_length, extra_length = reader.unpack(_LOCAL_HEADER, info.header_offset, "zip member header")
    if magic != MAGIC:
        raise BinaryError(f"no zip member at offset {info.header_offset:#x}: the archive is damaged")
    return int(info.header_offset + _LOCAL_HEADER.size + name_length + extra_length)


def _unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo, out: IO[bytes], label: str) -> None:
    try:
        with archive.open(info) as source:
            while chunk := source.read(_COPY_CHUNK):
                out.write(chunk)
    except _ZIP_ERRORS as error:
        raise BinaryError(f"{label}: cannot be unpacked: {error}") from error
