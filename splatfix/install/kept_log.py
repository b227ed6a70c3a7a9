"""The log that a child process fills: where it cannot be written, one error says so in the place of the system's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.step import run


@contextmanager
def kept_log(log: Path) -> Iterator[None]:
    """While a child writes to ``log``.

    Raises:
        SplatfixError: ``cannot-write`` when the disk is full or the folder is gone; the child has been ended then.
    """
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise SplatfixError(
            "cannot-write",
            f"The log {log} cannot be written: {error.strerror or error}.",
            meaning="What it was the log of was stopped; everything is as it was before.",
            todo=(run("splatfix", "install", "--resume", text="Make room on that disk, then"),),
        ) from error
