"""The one way to read a file that somebody else wrote: a regular one, never waiting for it, and never more than a limit."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from splatfix.core.limits import MOST_INSTALLED, MOST_TEXT

StrPath = str | os.PathLike[str]

# A device or a pipe put in the place of a file after it was looked at neither blocks nor becomes our terminal.
NEVER_WAITING = 0
for _flag in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):
    NEVER_WAITING |= getattr(os, _flag, 0)
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
    """Return what a regular file holds, links followed; None when there is nothing of that name.

    Sizes are not believed (a file of the kernel has none, a sparse one any): no more than ``most`` bytes are ever read.
    """
    name = os.fspath(path)
    try:
        with _opened(name) as (handle, size):
            if size > most:
                return Unread(name, _too_large(most, f": {size} bytes"))
            content = _up_to(handle, most + 1)
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
    """Return the same as text: UTF-8 with damaged bytes replaced, no byte-order mark, lines ended by a newline alone."""
    content = read_bytes(path, most)
    return as_text(content) if isinstance(content, bytes) else content


def read_start(path: StrPath, most: int) -> bytes:
    """Return the first bytes of a regular file; empty when it is none or cannot be read."""
    return read_part(path, 0, most)


def read_part(path: StrPath, offset: int, most: int) -> bytes:
    """Return bytes of a regular file from an offset on; empty when it is none, ends before that, or cannot be read."""
    try:
        with _opened(path) as (handle, _):
            if offset:
                os.lseek(handle, offset, os.SEEK_SET)
            return _up_to(handle, most)
    except (OSError, ValueError):
        return b""


def read_blocks(path: StrPath, most: int = MOST_INSTALLED) -> Iterator[bytes]:
    """Return what a regular file holds, in blocks.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger than ``most`` bytes.
    """
    with _opened(path) as (handle, size):
        if size > most:
            raise OSError(_too_large(most))
        while block := os.read(handle, 1 << 20):
            most -= len(block)
            if most < 0:
                raise OSError("it has no end")
            yield block


def as_text(content: bytes) -> str:
    """Return bytes of a text file as text, whatever they are; see :func:`read_text`."""
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


@contextmanager
def _opened(path: StrPath) -> Iterator[tuple[int, int]]:
    """Open a regular file: its descriptor and size.

    Raises:
        OSError: it is none, or cannot be opened.
    """
    status, handle = os.stat(path), -1  # noqa: PTH116 - opening a device may already do something
    try:
        if stat.S_ISREG(status.st_mode):
            handle = os.open(path, os.O_RDONLY | NEVER_WAITING)
            status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}, not a file")
        yield handle, status.st_size
    finally:
        if handle >= 0:
            os.close(handle)


def _too_large(most: int, size: str = "") -> str:
    units = (("MiB", 1 << 20), ("KiB", 1 << 10), ("bytes", 1))
    unit, factor = next((row for row in units if most >= row[1]), units[-1])
    return f"it is larger than {most // factor} {unit}, the most that is read{size}"


# Path.is_file and the like raise for names that are too long; those of os.path take any name that a stranger writes.


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Tell whether it is a folder, links followed."""
    return os.path.isdir(path)  # noqa: PTH112


def is_regular_file(path: str | os.PathLike[str]) -> bool:
    """Tell whether it is a file, links followed."""
    return os.path.isfile(path)  # noqa: PTH113


def is_there(path: str | os.PathLike[str]) -> bool:
    """Tell whether there is something of that name, links followed."""
    return os.path.exists(path)  # noqa: PTH110


def resolved_folder(text: str | Path) -> Path | None:
    """The absolute path of the folder that is named, links followed and ``~`` expanded; None for anything else."""
    folder = Path(text).expanduser()
    return folder.resolve() if folder.is_dir() else None
