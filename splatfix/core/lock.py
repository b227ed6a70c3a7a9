"""Locks between processes, by filelock; where a file system has none, a file stands for one."""

import errno
import os
import platform
from contextlib import suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from splatfix.core.reading import read_start

_PATIENCE_S = 1.0
"""A process that was killed while it was starting a child leaves its lock with that child until the child has become the
program it was started for."""
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL}


class Locked(Exception):
    """Somebody else has the lock: ``process 123``, as far as it is known; and the file that stands for it."""

    def __init__(self, holder: str, substitute: Path | None = None) -> None:
        self.todo: tuple[str, ...] = ("Wait until it has finished, then run this again.",)
        if substitute:  # filelock takes over what a dead process of this machine has left, and knows no other
            self.todo += (f"If it has ended already, remove {substitute}.",)
        self._holder = f" ({holder})" if holder else ""

    def tell(self, folder: Path) -> str:
        """Return one sentence about who has the lock of a folder."""
        return f"Another splatfix{self._holder} has the lock of {folder}."


class Lock:
    """The lock of a file, which is made where there is none; held until it is released, or the process ends."""

    def __init__(self, path: Path, patience: float = _PATIENCE_S) -> None:
        """Take it, waiting some seconds for who has it: ``Locked``, or the ``OSError`` of a file that cannot be made."""
        self.path = path
        self.notes: tuple[str, ...] = ()
        self._lock: BaseFileLock = FileLock(path, fallback_to_soft=False)
        try:
            self._lock.acquire(timeout=patience)
        except Timeout:  # Windows does not let others read what is locked
            raise Locked(read_start(path, 100).decode("utf-8", "replace")) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            self._take_substitute(path.with_name(f"{path.name}.held"), patience)
            return
        # who holds it is only for the next one's error message: a full disk leaves it out
        with suppress(OSError):
            path.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")

    def _take_substitute(self, path: Path, patience: float) -> None:
        self._lock = substitute = SoftFileLock(path)
        try:
            substitute.acquire(timeout=patience)
        except Timeout:
            raise Locked(f"process {substitute.pid}" if substitute.pid else "", path) from None
        self.notes = (f"{path.parent} is on a file system without locks: {path.name} stood for one",)

    def release(self, *, remove: bool = False) -> None:
        """Let go of it, and with ``remove`` of its file too."""
        if remove:
            with suppress(OSError):
                self.path.unlink()
        self._lock.release()
        if remove and os.name == "nt":  # where an open file cannot be removed
            with suppress(OSError):
                self.path.unlink()
