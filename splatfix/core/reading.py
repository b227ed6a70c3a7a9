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
    try:
        with _opened(path) as handle:
            content = b"".join(_blocks(handle, most + 1))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None  # also for a NUL in the name, or a letter that no file's name has
    except OSError as error:
        return Unread(os.fspath(path), error.strerror or str(error))
    return Unread(os.fspath(path), _too_large(most)) if len(content) > most else content


def read_text(path: StrPath, most: int = MOST_TEXT) -> str | Unread | None:
    """Return the same as text: UTF-8 with damaged bytes replaced, no byte-order mark, lines ended by a newline alone."""
    content = read_bytes(path, most)
    return as_text(content) if isinstance(content, bytes) else content


def read_start(path: StrPath, most: int, offset: int = 0) -> bytes:
    """Return bytes of a regular file from an offset on; empty when it is none, ends before that, or cannot be read."""
    try:
        with _opened(path) as handle:
            os.lseek(handle, offset, os.SEEK_SET)
            return b"".join(_blocks(handle, most))
    except (OSError, ValueError):
        return b""


def read_blocks(path: StrPath, most: int = MOST_INSTALLED) -> Iterator[bytes]:
    """Return what a regular file holds, in blocks; an ``OSError`` where it is none, or is larger than ``most`` bytes."""
    with _opened(path) as handle:
        if os.fstat(handle).st_size > most:
            raise OSError(_too_large(most))
        yield from _blocks(handle, most)
        if os.read(handle, 1):
            raise OSError("it has no end")


def as_text(content: bytes) -> str:
    """Return bytes of a text file as text, whatever they are; see :func:`read_text`."""
    return content.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _blocks(handle: int, most: int) -> Iterator[bytes]:
    while most > 0 and (block := os.read(handle, min(most, 1 << 20))):
        most -= len(block)
        yield block


@contextmanager
def _opened(path: StrPath) -> Iterator[int]:
    """Open a regular file; an ``OSError`` for anything else."""
    _require_file(os.stat(path))  # noqa: PTH116 - opening a device may already do something
    with os.fdopen(os.open(path, os.O_RDONLY | NEVER_WAITING), "rb") as file:
        _require_file(os.fstat(file.fileno()))
        yield file.fileno()


def _require_file(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}, not a file")


def _too_large(most: int) -> str:
    return f"it is larger than {most / (1 << 20):g} MiB, the most that is read"


# Path.is_file and the like raise for names that are too long; these take any name that a stranger writes, and follow links
is_folder, is_regular_file, is_there = os.path.isdir, os.path.isfile, os.path.exists


def resolved_folder(text: str | Path) -> Path | None:
    """Return the absolute path of the folder that is named, links followed and ``~`` expanded; None for anything else."""
    folder = Path(text).expanduser()
    return folder.resolve() if folder.is_dir() else None
