"""What a command says when Ctrl-C or SIGTERM ended it: one sentence about the state it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from splatfix.core.step import Command
from splatfix.core.visible import visible

if TYPE_CHECKING:
    from splatfix.install import Journal


@contextmanager
def on_interrupt(message: str | Callable[[], str]) -> Iterator[None]:
    """Replace the text of an interrupt raised in here, unless it carries its own; "" keeps the default."""
    try:
        yield
    except KeyboardInterrupt as stop:
        text = str(stop) or (message if isinstance(message, str) else message())
        raise KeyboardInterrupt(text) from None


class EnvironmentState:
    """Compares an environment's journal before and after an interrupted ``install`` or ``revert``."""

    def __init__(self, prefix: Path, python: str) -> None:
        from splatfix.install import Journal

        self._journal: Journal = Journal(prefix / ".splatfix")
        self._prefix, self._python = visible(str(prefix)), python
        self._before = {item.id: item.status for item in self._journal.entries()}

    def describe(self) -> str:
        """The state of the environment now, as its journal has it, and the command to go on with on a line of its own."""
        from splatfix.install import EntryStatus

        entries = self._journal.entries()
        for item in entries:
            if item.changes and item.status in (EntryStatus.RUNNING, EntryStatus.REVERTING):
                text = f"an installation in {self._prefix} is unfinished. Restore the previous state with"
                return self._message(text, ("revert",))
        mine = [item for item in entries if self._before.get(item.id) is not item.status]
        if not mine:
            return self._message(f"nothing was changed in {self._prefix}.")
        entry = mine[-1]
        if entry.status is EntryStatus.ROLLED_BACK:
            text = f"{self._prefix} was restored to its previous state. Start again with"
            return self._message(text, ("install", "--resume"))
        if entry.status is EntryStatus.REVERTED:
            state = f"{self._prefix} is as it was"
            left = ", ".join(item.id for item in entries if item.active)
            if left:
                state = f"still installed in {self._prefix}: {left}"
            return self._message(f"the installation was reverted; {state}.")
        if entry.status is EntryStatus.DONE:
            text = "the installation is complete, but its kernels were not all verified on the GPU. "
            number = entry.id.partition("-")[0]
            return self._message(
                text + "Verify them, or undo it, with",
                ("certify", "--level", "2", "--device", "cuda"),
                ("revert", number),
            )
        text = f"nothing was changed in {self._prefix}. Start again with"
        return self._message(text, ("install", "--resume"))

    def _message(self, text: str, *commands: tuple[str, ...]) -> str:
        named = ("--python", self._python)
        lines = [f"  $ {Command(('splatfix', *arguments, *named)).shell()}" for arguments in commands]
        return "\n".join([f"Interrupted: {text}", *lines])
