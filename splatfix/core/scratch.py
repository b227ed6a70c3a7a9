"""Temporary folders that do not outlive splatfix: removed at the end, or by the next run where there was no end.

A folder is locked as long as its process lives; the operating system lets go of the lock whichever way the process ends.
Who can lock a folder that is there may remove it.
"""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

PREFIX = "splatfix-scratch-"
"""Of every folder where temporary files of all programs go; a person's own folder is not called so."""


class ScratchFolder:
    """A new folder that is locked until it is removed."""

    def __init__(self, base: Path, prefix: str, name: str = "") -> None:
        """Make one in ``base``: of that name if it is free, else of one that begins with ``prefix``."""
        while True:
            # hexadecimal digits spell no word that a program could read something into
            self.path = base / (name or f"{prefix}{os.urandom(6).hex()}")
            name = ""
            with suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
                with suppress(*_NOT_OURS):  # a sweep came before the lock, and is removing it
                    self._handle = _lock(self.path)
                    return

    def remove(self) -> None:
        """Remove it with all that is in it; what cannot be removed now is swept later."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


@contextmanager
def temporary_folder(prefix: str = PREFIX, base: Path | None = None) -> Iterator[Path]:
    """Make a temporary folder for a block.

    In a ``base``, which is not where temporary files go, what killed runs left under this prefix is removed now.
    """
    if base is not None:
        sweep([base], prefix)
    folder = ScratchFolder(base or Path(tempfile.gettempdir()), prefix)
    try:
        yield folder.path
    finally:
        folder.remove()


def sweep(bases: Iterable[Path], prefix: str = PREFIX) -> tuple[Path, ...]:
    """Remove folders whose process is dead, and return them."""
    swept: list[Path] = []
    for base in dict.fromkeys(bases):
        with suppress(OSError):
            for entry in sorted(os.scandir(base), key=lambda entry: entry.name):
                if entry.name.startswith(prefix) and _remove_if_dead(Path(entry.path)):
                    swept.append(Path(entry.path))
    return tuple(swept)


@cache
def process_folder() -> Path | None:
    """Return one folder for temporary files of this process and its children; None where none can be made (a full disk).

    The first call removes what killed runs left.
    """
    try:
        base = Path(tempfile.gettempdir())
        sweep([base])
        folder = ScratchFolder(base, PREFIX)
    except OSError:
        return None
    atexit.register(folder.remove)
    return folder.path


_NOT_OURS = (BlockingIOError, PermissionError, FileNotFoundError)
"""Another process has the lock, as SMB says it too, or the folder is gone."""


def _lock(folder: Path) -> int | None:
    """Lock a folder, and return its descriptor; None where folders have no locks: what a killed run leaves there stays.

    It raises one of :data:`_NOT_OURS`, or another ``OSError`` for what is no folder.
    """
    if sys.platform == "win32":
        return None
    import fcntl

    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), folder.lstat()):
            return handle
        raise FileNotFoundError(folder)
    except OSError as error:
        os.close(handle)
        if isinstance(error, _NOT_OURS):
            raise
        return None


def _remove_if_dead(folder: Path) -> bool:
    handle = None
    with suppress(OSError):
        handle = _lock(folder)
    if handle is None:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    os.close(handle)
    return not folder.exists()
