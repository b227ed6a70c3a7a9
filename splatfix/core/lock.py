"""Locks between processes: the operating system's, and where a file system has none, a file that says who holds it.

Standard library only, as of Python 3.7: the interpreter of the target environment runs this file too.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_DEAD_HOLDER_TIMEOUT = 5.0
"""Seconds a dead process may keep its lock."""


class Holder(NamedTuple):
    """The process that wrote itself into a lock."""

    host: str
    process: int
    started: str
    """When, as no other process of that number was; "" where the system does not tell."""

    def __str__(self) -> str:
        text = f"process {self.process}"
        if self.host != _here():
            text += f" on {self.host.partition(' ')[0]}"
        return text

    @property
    def dead(self) -> bool:
        """It has ended for certain: of another machine, or another container, nothing can be said."""
        if os.name != "posix" or self.host != _here():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):  # another user's
            pass
        return bool(self.started) and _started(self.process) not in ("", self.started)


class Locked(Exception):
    """Somebody else has the lock.

    Args:
        holder: who, as far as it is known; None also for one that has died.
        substitute: the file that stands for the lock, where nobody can tell whether the holder lives.
    """

    def __init__(self, holder: Holder | None, substitute: Path | None = None) -> None:
        self.holder = holder
        self.todo: tuple[str, ...] = ("Wait until it has finished, then run this again.",)
        self._unknown = substitute is not None and (holder is None or holder.host != _here())
        if self._unknown:
            self.todo += (f"If it has ended already, remove {substitute}.",)

    def tell(self, folder: Path) -> str:
        """One sentence about who is at work in a folder."""
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
        self._substitute: Path | None = None
        self._handle = _open(path)
        try:
            self._take()
        except BaseException:
            os.close(self._handle)
            raise

    def release(self, *, remove: bool = False) -> None:
        """Let go of it, and with ``remove`` of its file too."""
        if remove:
            with suppress(OSError):
                self.path.unlink()
        if self._substitute:
            self._substitute.unlink(missing_ok=True)
        os.close(self._handle)  # which lets go of the operating system's
        if remove and os.name == "nt":  # where an open file cannot be removed
            with suppress(OSError):
                self.path.unlink()

    def _take(self) -> None:
        deadline = time.monotonic() + _DEAD_HOLDER_TIMEOUT
        taken = try_lock(self._handle)
        while taken is False:
            # A process killed while it was starting a child leaves the lock with that child until the child has become
            # the program it was started for: a moment, and longer on a busy machine.
            holder = _read_holder(self._handle)
            if holder is None or not holder.dead:
                raise Locked(holder)
            if time.monotonic() > deadline:
                raise Locked(None)
            time.sleep(0.02)
            taken = try_lock(self._handle)
        if taken is None:
            self._make_substitute(self.path.with_name(f"{self.path.name}.held"))
        elif not is_same(self._handle, self.path):  # its last holder has just removed it
            os.close(self._handle)
            self._handle = _open(self.path)
            self._take()
        # who holds it is only for the next one's error message; on a full disk it is left out
        # and where the lock has a second name (``cp -al``), which is another environment's
        elif hasattr(os, "pwrite") and os.fstat(self._handle).st_nlink == 1:
            with suppress(OSError):
                _write_self(self._handle)

    def _make_substitute(self, path: Path) -> None:
        while True:
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
                break
            except FileExistsError:
                _remove_of_dead(path)
        self._substitute = path
        self.notes = (f"{path.parent} is on a file system without locks: {path.name} stood for one",)
        try:
            _write_self(handle)
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(handle)


def try_lock(handle: int) -> bool | None:
    """Take the operating system's lock on an open file; False at once if somebody else has it, None where there are none."""
    if sys.platform == "win32":
        import msvcrt

        with suppress(OSError):
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            return True
        return False
    import fcntl

    try:
        # flock and not lockf, whose locks end when any handle of the file is closed, and are not handed on by exec
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):  # the second is how SMB says it
            return False
        return None
    return True


def keep_through_exec(path: str) -> None:
    """Take a lock, waiting for it, for the program that this process is to become."""
    handle = _open(Path(path))
    taken = try_lock(handle)
    while taken is False:
        time.sleep(0.02)
        taken = try_lock(handle)
    if taken is None:
        _write_self(handle)
    os.set_inheritable(handle, True)


def is_held(path: Path) -> bool:
    """Whether a process has the lock, or may have it.

    Raises:
        OSError: when the file cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        taken = try_lock(handle)
        if taken is None and os.fstat(handle).st_size:
            holder = _read_holder(handle)
            return holder is None or not holder.dead
        return taken is False
    finally:
        os.close(handle)


def is_same(handle: int, path: Path) -> bool:
    """The open file or folder is still what has that name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.lstat())
    return False


def _read_holder(handle: int) -> Holder | None:
    """Who wrote itself last into an open lock; None for what is no such text."""
    os.lseek(handle, 0, os.SEEK_SET)
    try:
        document = json.loads(os.read(handle, 4096))
        return Holder(str(document["host"]), int(document["process"]), str(document["started"]))
    except (OSError, ValueError, KeyError, TypeError):  # Windows does not let others read what is locked
        return None


def _here() -> str:
    """This machine, with what tells process numbers of its containers apart."""
    host = platform.node()
    with suppress(OSError):
        host += f" {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - as of Python 3.9
    return host


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)


def this_process() -> Holder:
    """What this process writes of itself."""
    return Holder(_here(), os.getpid(), _started(os.getpid()))


def _write_self(handle: int) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(this_process()._asdict()).encode(), 0)


def _started(process: int) -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        state, *values = stat.rpartition(")")[2].split()
        return "ended" if state == "Z" else f"{boot} {values[18]}"
    except (OSError, IndexError, ValueError):
        return ""


def _remove_of_dead(path: Path) -> None:
    """Remove a substitute whose process is dead.

    Raises:
        Locked: when it lives, or nobody can tell.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return
    try:
        holder = _read_holder(handle)
        if holder is None or not holder.dead:
            raise Locked(holder, path)
        # moved first: another process may have removed it and put its own there since
        moved = path.with_name(f"{path.name}.{os.getpid()}")
        with suppress(FileNotFoundError):
            path.rename(moved)
            if is_same(handle, moved):
                moved.unlink()
            else:
                moved.rename(path)
    finally:
        os.close(handle)
