"""How a command ends that does not end well: one error, as text or as one JSON document, and the exit code that goes with it."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

from splatfix.cli.options import naming_python
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.step import say


def end_with(problem: SplatfixError) -> NoReturn:
    """Show the error, in the form that was asked for, and end the process."""
    problem.todo = tuple(naming_python(item, sys.argv) for item in problem.todo)
    if not (wants_json() and _written(problem)):
        from splatfix.report.console import show_error

        with contextlib.suppress(OSError):  # nobody is left to tell
            show_error(problem)
    sys.exit(int(problem.exit_code))


def _written(problem: SplatfixError) -> bool:
    """The JSON document went to standard output; False where that is itself what failed (a full disk)."""
    from splatfix.core.files import dumps
    from splatfix.report import console, document

    try:
        sys.stdout.write(dumps(document.error(problem)))
        sys.stdout.flush()
    except OSError:
        console.forget_output()
        return False
    return True


def wants_json() -> bool:
    """Asked of the words themselves, because wrong ones end a command before its options are read."""
    return "--json" in _own_words(sys.argv[1:])


def _own_words(typed: list[str]) -> list[str]:
    """Without the command that ``monitor`` is to watch, whose options are its own."""
    if "monitor" not in typed:
        return typed
    at = typed.index("monitor") + 1
    while at < len(typed) and typed[at].startswith("-") and typed[at] != "--":
        at += 2 if typed[at] in ("--out", "--interval") else 1
    return typed[:at]


def of_usage(message: str) -> SplatfixError:
    """Words that the command line could not read: an unknown option, a missing argument."""
    return SplatfixError(
        "wrong-usage",
        message,
        todo=(say("splatfix --help, or --help after the command's name, lists what there is."),),
        exit_code=Exit.USAGE,
    )


def of_system(error: OSError) -> SplatfixError:
    """The operating system refused something that no command foresaw: told as such, not as a defect of splatfix."""
    if _current_folder_is_gone():
        return SplatfixError(
            "no-current-folder",
            "The current folder does not exist any more: it was deleted or moved while this shell stood in it.",
            todo=(say("Change to a folder that exists, then call splatfix again."),),
            exit_code=Exit.USAGE,
        )
    place = f": {error.filename}" if error.filename else ""
    return SplatfixError(
        "os-error",
        f"The operating system refused{place}: {error.strerror or error}.",
        meaning="The command could not go on.",
        todo=(
            say(
                "Check permissions and free space there; --debug before the command's name shows where it happened."
            ),
        ),
    )


def of_splatfix(error: Exception) -> SplatfixError:
    """A defect of splatfix."""
    return SplatfixError(
        "internal-error",
        f"splatfix itself failed: {type(error).__name__}: {error}",
        meaning="This is a defect of splatfix, not of your machine.",
        todo=(say("Run the same command with --debug before its name and report what it prints."),),
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
