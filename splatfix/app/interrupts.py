"""What a command says when Ctrl-C or SIGTERM ended it: one sentence about the state it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from splatfix.core.step import Command
from splatfix.core.visible import visible


@contextmanager
def on_interrupt(message: str | Callable[[], str]) -> Iterator[None]:
    """Replace the text of an interrupt raised in here, unless it carries its own; "" keeps the default."""
    try:
        yield
    except KeyboardInterrupt as stop:
        text = str(stop) or (message if isinstance(message, str) else message())
        raise KeyboardInterrupt(text) from None


def environment_state(prefix: Path, python: str) -> Callable[[], str]:
    """What says after an interrupted ``install`` or ``revert`` in which state the environment is, by its journal as it was and
    as it is then; with the command to go on with on a line of its own."""
    from splatfix.install import EntryStatus, Journal

    journal, folder = Journal(prefix / ".splatfix"), visible(str(prefix))
    before = {item.id: item.status for item in journal.entries()}

    def message(text: str, *commands: tuple[str, ...]) -> str:
        named = ("--python", python)
        lines = [f"  $ {Command(('splatfix', *arguments, *named)).shell()}" for arguments in commands]
        return "\n".join([f"Interrupted: {text}", *lines])

    def describe() -> str:
        entries = journal.entries()
        for item in entries:
            if item.changes and item.status in (EntryStatus.RUNNING, EntryStatus.REVERTING):
                text = f"an installation in {folder} is unfinished. Restore the previous state with"
                return message(text, ("revert",))
        mine = [item for item in entries if before.get(item.id) is not item.status]
        if not mine:
            return message(f"nothing was changed in {folder}.")
        entry = mine[-1]
        if entry.status is EntryStatus.ROLLED_BACK:
            text = f"{folder} was restored to its previous state. Start again with"
            return message(text, ("install", "--resume"))
        if entry.status is EntryStatus.REVERTED:
            state = f"{folder} is as it was"
            left = ", ".join(item.id for item in entries if item.active)
            if left:
                state = f"still installed in {folder}: {left}"
            return message(f"the installation was reverted; {state}.")
        if entry.status is EntryStatus.DONE:
            text = "the installation is complete, but its kernels were not all verified on the GPU. "
            number = entry.id.partition("-")[0]
            return message(
                text + "Verify them, or undo it, with",
                ("certify", "--level", "2", "--device", "cuda"),
                ("revert", number),
            )
        text = f"nothing was changed in {folder}. Start again with"
        return message(text, ("install", "--resume"))

    return describe
