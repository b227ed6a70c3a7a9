"""The process around a command: signals, wrong usage, and how it ends when something goes wrong."""

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from msgspec import Struct
from typer.core import TyperGroup

from splatfix.app.result import deliver_error, show_message
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.runner import interrupt
from splatfix.core.step import Command, PlainStep, Step, say
from splatfix.core.toml import table_beside
from splatfix.core.visible import visible

NO_RESULT = "Interrupted: there is no result, and nothing was changed."
"""True of every command that only reads."""


class Invocation(Struct):
    """What of the typed words decides how an error is shown.

    Wrong usage ends a command before its options are parsed, so they are read here first, by the command's own parser,
    which passes over what it does not know. Words that belong to another program are none of the command's options.
    """

    command: str = "splatfix"
    """Such as ``cache list``; ``splatfix`` where no command, or none of a group's, was recognised."""
    as_json: bool = False
    python: str = ""
    """The environment that was named."""
    debug: bool = False

    def read(self, context: Any, name: str, command: Any, arguments: list[str]) -> None:
        path = [name]
        while arguments and arguments[0] in getattr(command, "commands", {}):
            path.append(arguments[0])
            command, arguments = command.commands[arguments[0]], arguments[1:]
        if hasattr(command, "commands"):
            return
        self.command = " ".join(path)
        # Resilient parsing is what typer completes half a command line with: it ends at what it cannot read, quietly.
        settings = {**command.context_settings, "resilient_parsing": True, "ignore_unknown_options": True}
        lenient = command.context_class(command, parent=context, info_name=path[-1], **settings)
        typed, _, _ = command.make_parser(lenient).parse_args(list(arguments))
        self.as_json = bool(typed.get("as_json"))
        self.python = typed.get("python") or ""


class Commands(TyperGroup):
    """The top-level group; an interrupted command says in which state it leaves things before typer ends it."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _showing_words():
            return super().make_context(*arguments, **options)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Until a command is recognised, ``--json`` anywhere asks for a document."""
        ctx.ensure_object(Invocation).as_json = "--json" in args
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        moved = table_beside(__file__)["moved"]
        for word in (args[0], " ".join(args[:2])):
            if word in moved and word not in self.commands:
                raise SplatfixError.of("cli.moved", word=word, instead=moved[word])
        name, command, arguments = super().resolve_command(ctx, args)
        ctx.ensure_object(Invocation).read(ctx, name, command, arguments)
        return name, command, arguments

    def invoke(self, ctx: Any) -> Any:
        try:
            with _showing_words():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            text = str(stop) or NO_RESULT
            raise typer.Exit(end_interrupted(text, ctx.ensure_object(Invocation))) from None
        except typer.Abort:  # no, to a question
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


_CLEARING_S = 10.0
"""For what was begun to be cleared away after an interrupt. Another one in that time would leave it."""
_interrupts: list[float] = []


def _interrupt(_number: int, _frame: object) -> None:
    if _interrupts and time.monotonic() - _interrupts[-1] < _CLEARING_S:
        return
    _interrupts[:] = [time.monotonic()]
    threading.excepthook = _ignore_interrupts
    interrupt()


def _ignore_interrupts(problem: threading.ExceptHookArgs) -> None:
    """A thread that waits for the main one passes the interrupt on; that is not worth a traceback."""
    if problem.exc_type is not KeyboardInterrupt:
        threading.__excepthook__(problem)


def end_with(problem: SplatfixError, invocation: Invocation) -> NoReturn:
    """Show an error in the form that was asked for, and end the process."""
    problem.todo = tuple(naming_python(step, invocation.python) for step in problem.todo)
    raise SystemExit(deliver_error(problem, invocation.command, as_json=invocation.as_json))


def end_with_usage(error: Any, invocation: Invocation) -> NoReturn:
    """Show words that the command line could not parse: as typer does, unless a program reads it."""
    if invocation.as_json:
        todo = say("splatfix --help, or --help after the command's name, lists the options.")
        end_with(usage_error("wrong-usage", error.format_message(), todo), invocation)
    from typer.rich_utils import rich_format_error

    rich_format_error(error)
    raise SystemExit(Exit.USAGE)


def end_interrupted(text: str, invocation: Invocation) -> int:
    """Say in which state an interrupted command leaves things, with ``--json`` as an error document; returns the exit code."""
    if invocation.as_json:
        problem = SplatfixError("interrupted", text, exit_code=Exit.INTERRUPTED)
        return deliver_error(problem, invocation.command, as_json=True)
    show_message(text)
    return int(Exit.INTERRUPTED)


_FOR_ENVIRONMENT = ("install", "revert", "diagnose", "certify")
"""Commands of ours with ``--python``, as advice names them."""


def naming_python(step: Step, python: str) -> Step:
    """A step that is a splatfix command, for the environment that was named on the command line; "" for none."""
    if not python or step.command is None:
        return step
    argv = step.command.argv
    if len(argv) < 2 or argv[0] != "splatfix" or argv[1] not in _FOR_ENVIRONMENT or "--python" in argv:
        return step
    return PlainStep(step.text, Command((*argv, "--python", python)))


def error_of(error: Exception) -> SplatfixError:
    """What ended a command, as an error for people."""
    if isinstance(error, SplatfixError):
        return error
    if isinstance(error, MemoryError):
        return SplatfixError.of("cli.out-of-memory")
    if not isinstance(error, OSError):
        return SplatfixError.of("cli.internal-error", kind=type(error).__name__, error=error)
    # the operating system refused something that no command foresaw; not a defect of splatfix
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() says the same and imports more
    except FileNotFoundError:
        return SplatfixError.of("cli.no-current-folder")
    except OSError:
        pass  # it is there, and cannot be read: that is not what the command was refused
    if error.errno == errno.ENAMETOOLONG:
        return SplatfixError.of("cli.name-too-long", name=str(error.filename)[:60])
    file = f": {error.filename}" if error.filename else ""
    return SplatfixError.of("cli.os-error", file=file, reason=error.strerror or error)
