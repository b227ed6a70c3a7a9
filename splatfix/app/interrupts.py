"""What a command says when Ctrl-C or SIGTERM ended it: one sentence about the state it leaves behind."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from splatfix.core.step import Command
from splatfix.core.visible import visible
from splatfix.install import EntryStatus, Journal


@contextmanager
def on_interrupt(message: str | Callable[[], str]) -> Iterator[None]:
    """Replace the text of an interrupt raised in here, unless it carries its own; "" keeps the default."""
    try:
        yield
    except KeyboardInterrupt as stop:
        text = str(stop) or (message if isinstance(message, str) else message())
        raise KeyboardInterrupt(text) from None


def environment_state(prefix: Path, python: str) -> Callable[[], str]:
    """Return what says after an interrupted ``install`` or ``revert`` in which state the environment is, by its journal as it was
    and as it is then; with the commands to go on with, a line each."""
    journal, folder = Journal(prefix / ".splatfix"), visible(str(prefix))
    before = {item.id: item.status for item in journal.entries()}

    def describe() -> str:
        entries = journal.entries()
        mine = [item for item in entries if before.get(item.id) is not item.status]
        status, half_done = mine[-1].status if mine else None, (EntryStatus.RUNNING, EntryStatus.REVERTING)
        text, commands = f"nothing was changed in {folder}.", list[str]()
        if any(item.changes and item.status in half_done for item in entries):
            text = f"an installation in {folder} is unfinished. Restore the previous state with"
            commands = ["revert"]
        elif status is EntryStatus.REVERTED:
            text = f"an installation in {folder} was reverted."
        elif status is EntryStatus.DONE:
            text = "the installation is complete, but its kernels were not all verified on the GPU. Verify them, or undo it, with"
            number = mine[-1].id.partition("-")[0]
            commands = ["certify --level 2 --device cuda", f"revert {number}"]
        elif mine:
            if status is EntryStatus.ROLLED_BACK:
                text = f"{folder} was restored to its previous state."
            text, commands = f"{text} Start again with", ["install --resume"]
        lines = [Command(("splatfix", *line.split(), "--python", python)).shell() for line in commands]
        return "\n".join([f"Interrupted: {text}", *(f"  $ {line}" for line in lines)])

    return describe
