"""Temporary folders that do not outlive splatfix: removed at the end, or by the next run where there was no end.

A folder is locked as long as its process lives; the operating system lets go of the lock whichever way the process ends.
Who can lock a folder that is there may remove it.
"""

import atexit
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "splatfix-scratch-"
"""Of every folder where temporary files of all programs go; a person's own folder is not called so."""


class ScratchFolder:
    """A new folder that is locked until it is removed."""

    def __init__(self, base: Path, prefix: str, name: str = "") -> None:
        """Make one in ``base``: of that name if it is free, else of one that begins with ``prefix``.

        Raises:
            OSError: when ``base`` cannot be written.
        """
        self.path = base / name
        while True:
            with suppress(FileExistsError):
                if not name:
                    # hexadecimal digits spell no word that a program could read something into
                    self.path = base / f"{prefix}{os.urandom(6).hex()}"
                self.path.mkdir(mode=0o700)
                handle = _open(self.path)
                if handle is None or _lock(handle, self.path) is not False:
                    self._handle = handle
                    return
                os.close(handle)  # a sweep came before the lock, and is removing it
            name = ""

    def remove(self) -> None:
        """Remove it with all that is in it; what cannot be removed now is swept later."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


@contextmanager
def temporary_folder(prefix: str = PREFIX, base: Path | None = None) -> Iterator[Path]:
    """Make a temporary folder for a block.

    Args:
        base: where, if not where temporary files go; what killed runs left there under this prefix is removed now.
    """
    if base is not None:
        sweep([base], prefix)
    folder = ScratchFolder(base or Path(tempfile.gettempdir()), prefix)
    try:
        yield folder.path
    finally:
        folder.remove()


def sweep(bases: Iterable[Path], prefix: str = PREFIX) -> tuple[Path, ...]:
    """Remove folders of this user's whose process is dead, and return them."""
    swept: list[Path] = []
    for base in dict.fromkeys(bases):
        with suppress(OSError):
            for entry in sorted(os.scandir(base), key=lambda entry: entry.name):
                if entry.name.startswith(prefix) and _remove_if_dead(Path(entry.path)):
                    swept.append(Path(entry.path))
    return tuple(swept)


_making = threading.Lock()
_of_process: list[ScratchFolder] = []


def process_folder() -> Path | None:
    """Return one folder for temporary files of this process and its children; None where none can be made (a full disk).

    The first call removes what killed runs left.
    """
    with _making:
        if not _of_process:
            try:
                base = Path(tempfile.gettempdir())
                sweep([base])
                _of_process.append(ScratchFolder(base, PREFIX))
                atexit.register(_of_process[0].remove)
            except OSError:
                return None
        return _of_process[0].path


def _open(folder: Path) -> int | None:
    if sys.platform == "win32":  # folders have no locks there: what a killed run leaves stays
        return None
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _lock(handle: int, folder: Path) -> bool | None:
    """Lock an open folder; False when another has it or it is gone, None on a file system without locks."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(handle), folder.lstat())
    except (BlockingIOError, PermissionError, FileNotFoundError):  # the second is how SMB says it
        return False
    except OSError:
        return None


def _remove_if_dead(folder: Path) -> bool:
    try:
        handle = _open(folder)
    except OSError:  # no folder, or another user's
        return False
    if handle is None:
        return False
    try:
        if os.fstat(handle).st_uid != os.getuid() or not _lock(handle, folder):
            return False
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    finally:
        os.close(handle)
