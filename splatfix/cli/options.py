"""Options that several commands share, so that each has one name and one meaning everywhere; checks of typed paths."""

from __future__ import annotations

import os
import select
import signal
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, Optional

import typer

if TYPE_CHECKING:
    from splatfix.app.result import Result
    from splatfix.knowledge import Arch, Auto

# Help panels: the sections of --help
OUTPUT = "Output"

Python = Annotated[
    Optional[str],
    typer.Option(
        "--python",
        help="Target environment: a Python interpreter, or a venv or conda folder.",
        show_default="the activated one, or .venv of this project",
        metavar="ENV",
    ),
]
Targets = Annotated[
    Optional[list[str]],
    typer.Option("--target", "-t", help="GPU architecture such as sm_120; repeatable.", metavar="ARCH"),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of text.", rich_help_panel=OUTPUT)
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show passing checks and all evidence too.", rich_help_panel=OUTPUT),
]


class Device(str, Enum):
    """Where the kernels run; ``auto`` is the GPU where there is one and torch is built for it."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def finish(result: Result, as_json: bool, form: str = "") -> NoReturn:
    """Show the result of a use case, and end the command with its exit code."""
    from splatfix.app.result import deliver

    raise typer.Exit(deliver(result, as_json=as_json, form=form))


def one_form(as_json: bool, form: str) -> None:
    """Refuse ``--json`` beside a ``--format``, before anything is done: each is all of standard output.

    Raises:
        SplatfixError: ``json-and-format`` (exit code 2).
    """
    from splatfix.core.errors import usage_error
    from splatfix.core.step import say

    if as_json and form != "text":
        raise usage_error(
            "json-and-format",
            f"--json and --format {form} both choose what is printed.",
            say("Use one of them; splatfix report show FILE prints a certificate in any other form later."),
        )


def confirm_unless(yes: bool, question: str, *, default: bool = True) -> None:
    """Ask on a terminal before something is changed; elsewhere nobody could answer."""
    from splatfix.app.result import is_terminal, show_message

    if yes or not is_terminal():
        return
    try:
        while (answer := _answer(f"{question} {'[Y/n]' if default else '[y/N]'}: ")) not in ("y", "yes"):
            if answer in ("n", "no") or (not answer and not default):
                raise typer.Abort
            if not answer:
                return
            show_message("Please answer y or n.")
    except KeyboardInterrupt:
        show_message("")
        raise KeyboardInterrupt("Interrupted: nothing was changed.") from None


def _answer(question: str) -> str:
    """The line that was typed.

    Python runs a signal handler only after the read that it interrupts, and a signal that comes just before a read does
    not interrupt it; so this waits for either of the two first.
    """
    from splatfix.app.result import show_question

    show_question(question)
    if os.name == "posix" and sys.stdin.isatty():  # a Windows console cannot be waited for
        heard, rings = os.pipe()
        os.set_blocking(rings, False)
        before = signal.set_wakeup_fd(rings)
        try:
            select.select([sys.stdin, heard], [], [])
        finally:
            signal.set_wakeup_fd(before)
            os.close(heard)
            os.close(rings)
    line = sys.stdin.readline()
    if not line:
        raise typer.Abort
    return line.strip().lower()


def archs(targets: list[str] | None) -> tuple[Arch, ...]:
    """``--target`` values where only a named GPU makes sense, each once, in the order given.

    Raises:
        SplatfixError: ``unknown-arch`` (exit code 2), also for ``auto``.
    """
    from splatfix.core.errors import usage_error
    from splatfix.knowledge import parse_targets

    try:
        return tuple(dict.fromkeys(arch for text in targets or () for arch in parse_targets(text)))
    except ValueError as error:
        raise usage_error("unknown-arch", str(error)) from error


def archs_or_auto(targets: list[str] | None) -> tuple[Arch | Auto, ...]:
    """``--target`` values, ``auto`` for this machine's own GPUs among them, each once, in the order given.

    Raises:
        SplatfixError: ``unknown-arch`` (exit code 2).
    """
    from splatfix.core.errors import usage_error
    from splatfix.knowledge import parse_requested

    try:
        return parse_requested(targets or ())
    except ValueError as error:
        raise usage_error("unknown-arch", str(error)) from error


def arch_names(targets: list[str] | None) -> tuple[str, ...]:
    """As :func:`archs`, by their canonical names (``12.0`` -> ``sm_120``)."""
    return tuple(arch.sm for arch in archs(targets))


def file_to_write(path: Path | None) -> Path | None:
    """A file that a command will write, in a folder that exists: a typing error makes no folder.

    Raises:
        SplatfixError: ``cannot-save`` (exit code 2), before anything else is done.
    """
    from splatfix.core.errors import usage_error
    from splatfix.core.step import say

    if path is None:
        return None
    if path.is_dir():
        raise usage_error(
            "cannot-save", f"{path} is a folder.", say(f"Name a file in it: {path / 'facts.json'}")
        )
    if not path.parent.is_dir():
        raise usage_error(
            "cannot-save",
            f"There is no folder {path.parent}.",
            say("Create it first, or name a file elsewhere."),
        )
    return path


def folder_to_write(folder: Path) -> Path:
    """A folder that a command will write into; the command creates it where it does not exist yet.

    Raises:
        SplatfixError: ``cannot-write`` (exit code 2) where that is plainly impossible, before anything is started.
    """
    from splatfix.core.errors import usage_error
    from splatfix.core.step import say

    there = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        raise usage_error("cannot-write", f"{there} is not a folder.", say("Name another one with --out."))
    if not os.access(there, os.W_OK | os.X_OK):
        raise usage_error(
            "cannot-write", f"{there} cannot be written to.", say("Name another one with --out.")
        )
    return folder
