"""Who holds a lock between processes, and the lock that another interpreter takes for its installer.

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
        """Tell whether it has ended for certain: of another machine, or another container, nothing can be said."""
        if os.name != "posix" or self.host != _here():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):  # another user's
            pass
        return bool(self.started) and _started(self.process) not in ("", self.started)


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
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    taken = try_lock(handle)
    while taken is False:
        time.sleep(0.02)
        taken = try_lock(handle)
    if taken is None:
        write_self(Path(path))
    os.set_inheritable(handle, True)


def is_held(path: Path) -> bool:
    """Tell whether a process has the lock, or may have it.

    Raises:
        OSError: when the file cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        taken = try_lock(handle)
        if taken is None and os.fstat(handle).st_size:
            holder = read_holder(path)
            return holder is None or not holder.dead
        return taken is False
    finally:
        os.close(handle)


def read_holder(path: Path) -> Holder | None:
    """Return who wrote itself last into a lock; None for what is no such text."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Holder(str(document["host"]), int(document["process"]), str(document["started"]))
    except (OSError, ValueError, KeyError, TypeError):  # Windows does not let others read what is locked
        return None


def _here() -> str:
    """Name this machine, with what tells process numbers of its containers apart."""
    host = platform.node()
    with suppress(OSError):
        host += f" {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - as of Python 3.9
    return host


def this_process() -> Holder:
    """Return what this process writes of itself."""
    return Holder(_here(), os.getpid(), _started(os.getpid()))


def write_self(path: Path) -> None:
    """Write this process into a lock that it holds."""
    path.write_text(json.dumps(this_process()._asdict()), encoding="utf-8")


def _started(process: int) -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        state, *values = stat.rpartition(")")[2].split()
        return "ended" if state == "Z" else f"{boot} {values[18]}"
    except (OSError, IndexError, ValueError):
        return ""
