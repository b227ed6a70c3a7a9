"""Locks between processes, by filelock; where a file system has none, a file that says who holds it stands for one."""

import errno
import os
import platform
from contextlib import suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from splatfix.core.holder import Holder, read_holder, this_process, write_self

_DEAD_HOLDER_TIMEOUT = 5.0
"""Seconds a dead process may keep its lock: one that was killed while it was starting a child leaves the lock with that child
until the child has become the program it was started for."""
_SECOND_LOOK = 0.2
"""Seconds; filelock looks every 0.05. The last holder may just have removed the file; what a dead one has left is taken over."""
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL}


class Locked(Exception):
    """Somebody else has the lock.

    Args:
        holder: who, as far as it is known; None also for one that has died.
        substitute: the file that stands for the lock.
    """

    def __init__(self, holder: Holder | None, substitute: Path | None = None) -> None:
        self.holder = holder
        self.todo: tuple[str, ...] = ("Wait until it has finished, then run this again.",)
        # filelock takes over what a dead process of this machine has left: this one is alive, or of another machine
        self._unknown = substitute is not None and (
            holder is None or holder.dead or holder.host != this_process().host
        )
        if self._unknown:
            self.todo += (f"If it has ended already, remove {substitute}.",)

    def tell(self, folder: Path) -> str:
        """Return one sentence about who is at work in a folder."""
        if self._unknown:
            return f"{folder} is locked by {self.holder or 'another splatfix'}; whether it still runs cannot be seen here."
        process = f" ({self.holder})" if self.holder else ""
        return f"Another splatfix{process} is working in {folder}."


class Lock:
    """The lock of a file, which is made where there is none; held until it is released, or the process ends."""

    def __init__(self, path: Path) -> None:
        """Take it; does not wait for a living holder.

        Raises:
            Locked: when somebody else has it.
            OSError: when the file cannot be made or opened.
        """
        self.path = path
        self.notes: tuple[str, ...] = ()
        self._lock: BaseFileLock = FileLock(path, fallback_to_soft=False)
        try:
            self._take()
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            self._take_substitute(path.with_name(f"{path.name}.held"))

    def _take(self) -> None:
        try:
            self._lock.acquire(timeout=_SECOND_LOOK)
        except Timeout:
            holder = read_holder(self.path)
            if holder is None or not holder.dead:
                raise Locked(holder) from None
            try:
                self._lock.acquire(timeout=_DEAD_HOLDER_TIMEOUT)
            except Timeout:
                raise Locked(None) from None
        # who holds it is only for the next one's error message; on a full disk it is left out
        # and where the lock has a second name (``cp -al``), which is another environment's
        with suppress(OSError):
            if os.name == "posix" and self.path.stat().st_nlink == 1:
                write_self(self.path)

    def _take_substitute(self, path: Path) -> None:
        substitute = SoftFileLock(path)
        try:
            substitute.acquire(timeout=_SECOND_LOOK)
        except Timeout:
            raise Locked(_holder_of(substitute, path), path) from None
        self._lock = substitute
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


def _holder_of(substitute: SoftFileLock, path: Path) -> Holder | None:
    """Return who wrote a substitute, by filelock's format: the process in the first line, its machine in the second."""
    number = substitute.pid
    if not number:
        return None
    with suppress(OSError, ValueError):
        name = "".join(path.read_text(encoding="utf-8").splitlines()[1:2])
        if name != platform.node():
            return Holder(name, number, "")
    return this_process()._replace(process=number, started="")
