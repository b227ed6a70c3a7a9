"""The one way to read a file that somebody else wrote: a regular one, never waiting for it, and never more than a limit."""

import os
import stat
from collections.abc import Iterator

from msgspec import Struct

from splatfix.core.limits import MOST_INSTALLED, MOST_TEXT

StrPath = str | os.PathLike[str]

# A device or a pipe put in the place of a file after it was looked at neither blocks nor becomes our terminal.
NEVER_WAITING = 0
for _flag in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):
    NEVER_WAITING |= getattr(os, _flag, 0)
_FLAGS = os.O_RDONLY | NEVER_WAITING
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class Unread(Struct, frozen=True):
    """Something that is there and was not read, or not to its end."""

    path: str
    reason: str
    """A sentence without its full stop: ``it is a named pipe, not a file``."""


def read_bytes(path: StrPath, most: int = MOST_TEXT) -> bytes | Unread | None:
    """What a regular file holds, links followed; None when there is nothing of that name.

    Sizes are not believed (a file of the kernel has none, a sparse one any): no more than ``most`` bytes are ever read.
    """
    name = os.fspath(path)
    try:
        status = os.stat(name)  # noqa: PTH116 - opening a device may already do something
        if not stat.S_ISREG(status.st_mode):
            return Unread(name, _not_a_file(status.st_mode))
        if status.st_size > most:
            return Unread(name, _too_large(most, f": {status.st_size} bytes"))
        handle = os.open(name, _FLAGS)
        try:
            if not stat.S_ISREG(mode := os.fstat(handle).st_mode):
                return Unread(name, _not_a_file(mode))
            content = _up_to(handle, most + 1)
        finally:
            os.close(handle)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return Unread(name, error.strerror or str(error))
    except ValueError:  # a NUL, or a letter that no file's name has
        return None
    if len(content) > most:
        return Unread(name, _too_large(most))
    return content


def read_text(path: StrPath, most: int = MOST_TEXT) -> str | Unread | None:
    """The same as text: UTF-8 with damaged bytes replaced, no byte-order mark, lines ended by a newline alone."""
    content = read_bytes(path, most)
    return as_text(content) if isinstance(content, bytes) else content


def read_start(path: StrPath, most: int) -> bytes:
    """The first bytes of a regular file; empty when it is none or cannot be read."""
    return read_part(path, 0, most)


def read_part(path: StrPath, offset: int, most: int) -> bytes:
    """Bytes of a regular file from an offset on; empty when it is none, ends before that, or cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            return b""
        handle = os.open(path, _FLAGS)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return b""
            if offset:
                os.lseek(handle, offset, os.SEEK_SET)
            return _up_to(handle, most)
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return b""


def read_blocks(path: StrPath, most: int = MOST_INSTALLED) -> Iterator[bytes]:
    """What a regular file holds, in blocks.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger than ``most`` bytes.
    """
    status = os.stat(path)  # noqa: PTH116
    if not stat.S_ISREG(status.st_mode):
        raise OSError(_not_a_file(status.st_mode))
    if status.st_size > most:
        raise OSError(_too_large(most))
    handle = os.open(path, _FLAGS)
    try:
        while block := os.read(handle, 1 << 20):
            most -= len(block)
            if most < 0:
                raise OSError("it has no end")
            yield block
    finally:
        os.close(handle)


def as_text(content: bytes) -> str:
    """Bytes of a text file as text, whatever they are; see :func:`read_text`."""
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    if "\r" not in text:  # most texts, and a search is far faster than two replacements
        return text
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _up_to(handle: int, most: int) -> bytes:
    parts = []
    while most > 0 and (part := os.read(handle, min(most, 1 << 20))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def _not_a_file(mode: int) -> str:
    return f"it is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file"


def _too_large(most: int, size: str = "") -> str:
    units = (("MiB", 1 << 20), ("KiB", 1 << 10), ("bytes", 1))
    unit, factor = next((unit, factor) for unit, factor in units if most >= factor)
    return f"it is larger than {most // factor} {unit}, the most that is read{size}"
