"""One lock for each environment, held by the operating system, so that it vanishes with the process that holds it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.step import say

_A_MOMENT = 5.0
"""Seconds a dead process may keep its lock."""


@contextmanager
def environment_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of the environment whose ``.splatfix`` folder this is; never waits for a living holder.

    Raises:
        SplatfixError: ``environment-busy`` when another splatfix is at work there, ``cannot-write-environment``.
    """
    path = folder / "lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise SplatfixError(
            "cannot-write-environment",
            f"{path} cannot be written: {error.strerror or error}.",
            meaning="Nothing was changed.",
            todo=(say("Use an environment you may write to."),),
        ) from error
    try:
        if not _lock_of_the_living(handle):
            holder = _holder(handle)
            raise SplatfixError(
                "environment-busy",
                f"Another splatfix{f' (process {holder})' if holder else ''} is at work in {folder.parent}.",
                meaning="Nothing was changed: two installations at once would spoil each other.",
                todo=(say("Wait until it has finished, then run this again."),),
            )
        # who holds it is only told to the next one; on a full disk it is left out
        with suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0) if hasattr(os, "pwrite") else None
        yield
    finally:
        os.close(handle)  # closing releases the lock


def _lock_of_the_living(handle: int) -> bool:
    """Take the lock, or say False when a living process has it.

    A process killed while it was starting a child leaves the lock with that child until the child has become the
    program it was started for: a moment, and longer on a busy machine.
    """
    end = time.monotonic() + _A_MOMENT
    while not try_lock(handle):
        if time.monotonic() > end or not _is_dead(_holder(handle)):
            return False
        time.sleep(0.02)
    return True


def _holder(handle: int) -> str:
    """Number of the process that took the lock last; "" where it could not write it."""
    os.lseek(handle, 0, os.SEEK_SET)
    return os.read(handle, 64).decode("ascii", "replace").strip()


def _is_dead(pid: str) -> bool:
    if os.name != "posix" or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def try_lock(handle: int) -> bool:
    """Take the operating system's lock on an open file, or say False at once."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
