"""Anything a person may point at: a library, a wheel, or a folder of libraries."""

from __future__ import annotations

import os
from pathlib import Path

from splatfix.binaries._bytes import opened
from splatfix.binaries.folder import find_binaries
from splatfix.binaries.model import Binary, BinaryError
from splatfix.binaries.reader import is_binary, read_binary
from splatfix.binaries.wheel import MAGIC as ZIP_MAGIC
from splatfix.binaries.wheel import OnError, read_wheel

# Files people mistake for a CUDA library, by their first bytes.
_OTHERS = {
    b"!<arch>\n": "a static library: it takes effect only through what is linked from it; inspect that",
    b"\xcf\xfa\xed\xfe": "a macOS library: CUDA code does not occur in those",
    b"\xca\xfe\xba\xbe": "a macOS universal library: CUDA code does not occur in those",
    b"\x1f\x8b": "a gzip archive: unpack it, or build a wheel from it first",
    b"PK\x05\x06": "an empty zip file",
}


def read_path(
    path: str | os.PathLike[str], *, on_error: OnError | None = None, on_skipped: OnError | None = None
) -> tuple[Binary, ...]:
    """Read a native file, a wheel, or every native file below a folder.

    With `on_error`, one unreadable file in a folder or wheel is reported to it and the others are still read. `on_skipped`
    hears of what the system does not let be read at all (folders, files, links); without it that is an error like others.
    Raises `BinaryError` with a sentence for people for a path that is none of these.
    """
    place = Path(path)
    try:
        is_folder = place.is_dir()
    except (OSError, ValueError) as error:
        raise BinaryError(f"{place}: cannot be read: {error}") from error
    if is_folder:
        return _read_folder(place, on_error, on_skipped or on_error)
    if is_binary(place):
        return (read_binary(place),)
    with opened(place) as reader:
        head = reader.take(0, min(8, reader.size), "the file's first bytes")
    if head.startswith(ZIP_MAGIC):
        return read_wheel(place, on_error=on_error)
    for magic, what in _OTHERS.items():
        if head.startswith(magic):
            raise BinaryError(f"{place}: {what}")
    raise BinaryError(
        f"{place}: neither a library (ELF or PE), a cubin, a fatbin, a wheel nor a folder (it starts with {head.hex()})"
    )


def _read_folder(folder: Path, on_error: OnError | None, on_skipped: OnError | None) -> tuple[Binary, ...]:
    found: list[Binary] = []

    def unreadable(path: Path, error: OSError) -> None:
        if on_skipped is not None:
            on_skipped(str(path), BinaryError(f"{path}: cannot be read: {error.strerror or error}"))

    for path in find_binaries(folder, on_unreadable=unreadable):
        try:
            found.append(read_binary(path))
        except BinaryError as error:
            if on_error is None:
                raise
            on_error(str(path), error)
    return tuple(found)
