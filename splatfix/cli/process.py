"""The process around a command: signals, wrong usage, and how it ends when something goes wrong."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.step import Command, Step, say
from splatfix.core.visible import visible

NO_RESULT = "Interrupted: there is no result, and nothing was changed."
"""True of every command that only reads."""


class Commands(TyperGroup):
    """The top-level group; an interrupted command says in which state it leaves things before typer ends it."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Parse the words before the command's name."""
        with _showing_words():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            with _showing_words():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise typer.Exit(end_interrupted(str(stop) or NO_RESULT)) from None
        except typer.Abort:  # no, to a question
            from splatfix.app.result import show_message

            show_message("Nothing was changed.")
            raise typer.Exit(1) from None


@contextmanager
def _showing_words() -> Iterator[None]:
    """typer shows wrong usage itself, and with it what was typed: control characters in that are made visible."""
    try:
        yield
    except UsageError as error:
        error.message = visible(error.message)  # type: ignore[attr-defined]
        raise


# What typer raises for an unknown option or a missing argument; typer does not export it under a name of its own.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def handle_signals() -> None:
    """SIGTERM and a hang-up end a command as Ctrl-C does; each ends all children first. What was ignored stays so (nohup)."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _interrupt)


def _interrupt(_number: int, _frame: object) -> None:
    from splatfix.core.runner import interrupt

    threading.excepthook = _ignore_interrupts
    interrupt()


def _ignore_interrupts(problem: threading.ExceptHookArgs) -> None:
    """A thread that waits for the main one passes the interrupt on; that is not worth a traceback."""
    if problem.exc_type is not KeyboardInterrupt:
        threading.__excepthook__(problem)


def end_with(problem: SplatfixError) -> NoReturn:
    """Show an error in the form that was asked for, and end the process."""
    from splatfix.app.result import deliver_error

    problem.todo = tuple(naming_python(item, sys.argv) for item in problem.todo)
    if for_monitoring():
        problem.exit_code = Exit.UNDETERMINED
    sys.exit(deliver_error(problem, command_name(sys.argv[1:]), as_json=wants_json()))


def end_interrupted(text: str) -> int:
    """Say in which state an interrupted command leaves things, with ``--json`` as an error document; returns the exit code."""
    code = Exit.UNDETERMINED if for_monitoring() else Exit.INTERRUPTED
    if wants_json():
        from splatfix.app.result import deliver_error

        problem = SplatfixError("interrupted", text, exit_code=code)
        return deliver_error(problem, command_name(sys.argv[1:]), as_json=True)
    from splatfix.app.result import show_message

    show_message(text)
    return int(code)


def wants_json() -> bool:
    """``--json`` was typed. Read from the words themselves: wrong usage ends a command before its options are parsed."""
    return "--json" in _own_words(sys.argv[1:])


def for_monitoring() -> bool:
    """``certify --exit-codes monitoring`` was typed: whatever keeps it from a verdict is 3, unknown, because a monitoring system
    takes 1 for a warning, and 2 and what is above 3 for critical. Read from the words, as :func:`wants_json` does."""
    typed = sys.argv[1:]
    asked = ("--exit-codes", "monitoring") in pairwise(typed) or "--exit-codes=monitoring" in typed
    return asked and command_name(typed) == "certify"


def command_name(typed: list[str]) -> str:
    """The command that was typed, such as ``cache list``; ``splatfix`` where none was."""
    words = [word for word in _own_words(typed) if not word.startswith("-")]
    for at, word in enumerate(words):
        if word in ("checks", "cache", "lanes", "scenes", "report"):
            return " ".join(words[at : at + 2])
        if word in ("diagnose", "inspect", "explain", "install", "revert", "verify", "certify", "monitor"):
            return word
    return "splatfix"


def _own_words(typed: list[str]) -> list[str]:
    """Without the command that ``monitor`` watches or ``explain`` runs, whose options are its own."""
    if "explain" in typed and "--" in typed:
        return typed[: typed.index("--")]
    if "monitor" not in typed:
        return typed
    at = typed.index("monitor") + 1
    while at < len(typed) and typed[at].startswith("-") and typed[at] != "--":
        at += 2 if typed[at] in ("--out", "--interval") else 1
    return typed[:at]


_FOR_ENVIRONMENT = {(name,) for name in ("install", "revert", "diagnose", "verify", "certify")}


def naming_python(step: Step, typed: Sequence[str]) -> Step:
    """A step that is a splatfix command, for the environment that was named on the command line."""
    given = next((pair[1] for pair in pairwise(typed) if pair[0] == "--python"), "")
    python = given or next((word.partition("=")[2] for word in typed if word.startswith("--python=")), "")
    argv = step.command.argv if step.command else ()
    if not python or argv[:1] != ("splatfix",) or argv[1:2] not in _FOR_ENVIRONMENT or "--python" in argv:
        return step
    return Step(step.text, Command((*argv, "--python", python)))


def usage_error_of(message: str) -> SplatfixError:
    """Words that the command line could not parse: an unknown option, a missing argument."""
    return SplatfixError(
        "wrong-usage",
        message,
        todo=(say("splatfix --help, or --help after the command's name, lists the options."),),
        exit_code=Exit.USAGE,
    )


def error_of(error: Exception) -> SplatfixError:
    """What ended a command, as an error for people."""
    if isinstance(error, SplatfixError):
        return error
    return _os_error_of(error) if isinstance(error, OSError) else _internal_error_of(error)


def _os_error_of(error: OSError) -> SplatfixError:
    """The operating system refused something that no command foresaw; not a defect of splatfix."""
    if _current_folder_is_gone():
        return SplatfixError(
            "no-current-folder",
            "The current folder does not exist any more: it was deleted or moved.",
            todo=(say("Change to a folder that exists, then run splatfix again."),),
            exit_code=Exit.USAGE,
        )
    place = f": {error.filename}" if error.filename else ""
    return SplatfixError(
        "os-error",
        f"The operating system refused{place}: {error.strerror or error}.",
        meaning="The command could not go on.",
        todo=(
            say(
                "Check permissions and free space there; --debug before the command's name shows the traceback."
            ),
        ),
    )


def _internal_error_of(error: Exception) -> SplatfixError:
    """A defect of splatfix."""
    return SplatfixError(
        "internal-error",
        f"splatfix itself failed: {type(error).__name__}: {error}",
        meaning="This is a bug in splatfix, not a problem of your machine.",
        todo=(say("Run the same command with --debug before its name, and report the traceback."),),
        exit_code=Exit.UNDETERMINED,
    )


def _current_folder_is_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() says the same and imports more
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
