"""What a command says when Ctrl-C or SIGTERM ended it: one sentence about the state it leaves behind."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from splatfix.install import Entry, Journal


@contextmanager
def on_interrupt(message: str | Callable[[], str]) -> Iterator[None]:
    """Replace the text of an interrupt raised in here, unless it carries its own; "" keeps the default."""
    try:
        yield
    except KeyboardInterrupt as stop:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # composing the message takes a moment
        try:
            text = str(stop) or (message if isinstance(message, str) else message())
        finally:
            signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt(text) from None


class EnvironmentState:
    """Compares an environment's journal before and after an interrupted ``install`` or ``revert``."""

    def __init__(self, prefix: Path, python: str) -> None:
        from splatfix.install import Journal

        self._journal: Journal = Journal(prefix / ".splatfix")
        self._prefix, self._python = prefix, f" --python {shlex.quote(python)}"
        self._before = {item.id: item.status for item in self._journal.entries()}

    def describe(self) -> str:
        """The state of the environment now, as its journal has it."""
        from splatfix.install import Status

        entries = self._journal.entries()
        if any(item.changes and item.status in (Status.RUNNING, Status.REVERTING) for item in entries):
            return (
                f"Interrupted: an installation in {self._prefix} is unfinished. "
                f"To restore the previous state: splatfix revert{self._python}"
            )
        mine = [item for item in entries if self._before.get(item.id) is not item.status]
        if not mine:
            return f"Interrupted: nothing was changed in {self._prefix}."
        return self._of(mine[-1])

    def _of(self, entry: Entry) -> str:
        from splatfix.install import Status

        resume = f"To start it again: splatfix install --resume{self._python}"
        number = entry.id.partition("-")[0]
        if entry.status is Status.ROLLED_BACK:
            return f"Interrupted: {self._prefix} was restored to its previous state. {resume}"
        if entry.status is Status.REVERTED:
            left = ", ".join(item.id for item in self._journal.entries() if item.active)
            state = f"still installed in {self._prefix}: {left}" if left else f"{self._prefix} is as it was"
            return f"Interrupted: the installation was reverted; {state}."
        if entry.status is Status.DONE:
            return (
                "Interrupted: the installation is complete, but its kernels were not all verified on the GPU. "
                f"To verify: splatfix verify --device cuda{self._python}. "
                f"To undo: splatfix revert {number}{self._python}"
            )
        return f"Interrupted: nothing was changed in {self._prefix}. {resume}"
