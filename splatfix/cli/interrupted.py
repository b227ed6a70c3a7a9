"""What a command says that Ctrl-C or SIGTERM ended: one sentence on the state it leaves things in, and exit code 130."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from splatfix.install import Entry, Journal

EXIT_CODE = 130
"""128 + SIGINT, as a shell tells it of the programs that the signal ends."""

NOTHING = "Interrupted: there is no result, and nothing was changed."
"""True of every command that only looks."""


class Commands(TyperGroup):
    """The commands; one that is interrupted says so before typer ends it without a word."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            typer.echo(str(stop) or NOTHING, err=True)
            raise typer.Exit(EXIT_CODE) from None
        except typer.Abort as no:  # to a question, which typer also says for Ctrl-C
            if isinstance(no.__context__, KeyboardInterrupt):
                typer.echo("\nInterrupted: nothing was changed.", err=True)
                raise typer.Exit(EXIT_CODE) from None
            typer.echo("Nothing was changed.", err=True)
            raise typer.Exit(1) from None


def listen() -> None:
    """SIGTERM ends a command as Ctrl-C does; either ends all children first. Ctrl-C that is ignored here stays so."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_number: int, _frame: object) -> None:
    from splatfix.core.runner import interrupt

    threading.excepthook = _quiet
    interrupt()


def _quiet(problem: threading.ExceptHookArgs) -> None:
    """What a thread that waits for the main one passes on of the interrupt is no news."""
    if problem.exc_type is not KeyboardInterrupt:
        threading.__excepthook__(problem)


@contextmanager
def on_interrupt(words: Callable[[], str]) -> Iterator[None]:
    """An interrupt in here is told in these words, unless it brings its own; "" leaves them to whoever is around."""
    try:
        yield
    except KeyboardInterrupt as stop:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the words are found in a moment
        try:
            said = str(stop) or words()
        finally:
            signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt(said) from None


class Installing:
    """An environment that an installation, or taking one back, is about to change."""

    def __init__(self, prefix: Path, python: str) -> None:
        from splatfix.install import Journal

        self._journal: Journal = Journal(prefix / ".splatfix")
        self._prefix, self._python = prefix, f" --python {shlex.quote(python)}"
        self._before = {item.id: item.status for item in self._journal.entries()}

    def words(self) -> str:
        """How the environment stands now that it was interrupted, as its journal says."""
        from splatfix.install import Status

        entries = self._journal.entries()
        if any(item.changes and item.status in (Status.RUNNING, Status.REVERTING) for item in entries):
            return (
                f"Interrupted: an installation in {self._prefix} is unfinished; "
                f"splatfix revert{self._python} puts back what was there before."
            )
        mine = [item for item in entries if self._before.get(item.id) is not item.status]
        if not mine:
            return f"Interrupted: nothing was changed in {self._prefix}."
        return self._of(mine[-1])

    def _state(self) -> str:
        """After something was taken back: where other entries stand, that is not the environment as it once was."""
        left = ", ".join(item.id for item in self._journal.entries() if item.stands)
        return f"in {self._prefix} there still stands {left}" if left else f"{self._prefix} is as it was"

    def _of(self, entry: Entry) -> str:
        from splatfix.install import Status

        resume = f"splatfix install --resume{self._python} starts it again."
        number = entry.id.partition("-")[0]
        return {
            Status.ROLLED_BACK: f"Interrupted: {self._prefix} was put back as it was. {resume}",
            Status.REVERTED: f"Interrupted: what was installed has been taken back; {self._state()}.",
            Status.DONE: "Interrupted: the installation stands, but its kernels were not all run on the GPU. "
            f"splatfix verify --device cuda{self._python} runs them; splatfix revert {number}{self._python} takes it back.",
        }.get(entry.status, f"Interrupted: nothing was changed in {self._prefix}. {resume}")
