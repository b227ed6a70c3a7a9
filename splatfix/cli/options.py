"""Options that several commands share, so that each has one name and one meaning everywhere; checks of typed paths."""

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Optional, TypeVar

import typer
from msgspec import Struct

from splatfix.app.result import Result, deliver, is_terminal
from splatfix.app.result import archs as archs
from splatfix.app.result import archs_or_auto as archs_or_auto
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.step import say
from splatfix.core.toml import table_beside

R = TypeVar("R", bound=Struct)


@cache
def _declared() -> Mapping[str, Mapping[str, Any]]:
    return table_beside(__file__)


def option(place: str, **functions: Any) -> Any:
    """An option or argument of a command as typer has it; its words and limits stand in ``options.toml``.

    Args:
        place: of it there, such as ``install.jobs``.
        functions: typer's ``callback`` and ``autocompletion``.
    """
    command, _, parameter = place.partition(".")
    row = dict(_declared()[command][parameter])
    declare: Callable[..., Any] = typer.Argument
    if "names" in row:
        declare = typer.Option
    return declare(*row.pop("names", ()), rich_help_panel=row.pop("panel", None), **row, **functions)


def examples(command: str) -> str:
    """The end of a command's help."""
    return "\n\n".join(f"Example: {line}" for line in _declared()["examples"][command])


def names_of(result: Callable[[], Any], rows: str, column: str = "name") -> Callable[[str], list[str]]:
    """What a shell completes: names that a listing shows, the last one behind a comma too.

    Args:
        result: the listing, asked only when a shell completes.
        rows: of its document; ``column`` is the field with the name.
    """

    def complete(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        names = [row[column] for row in result().document()[rows]]
        return [f"{before}{comma}{name}" for name in names if name.startswith(begun)]

    return complete


Python = Annotated[Optional[str], option("shared.python")]
Targets = Annotated[Optional[list[str]], option("shared.targets")]
Json = Annotated[bool, option("shared.json")]
Verbose = Annotated[bool, option("shared.verbose")]
Format = Annotated[Literal["text", "markdown", "github"], option("shared.format")]


def request_of(kind: type[R], command: Mapping[str, Any], **others: Any) -> R:
    """Return a request with the options that its fields are called after; what was not given keeps the field's default.

    Args:
        command: the variables of the command's function.
        others: the fields that are called otherwise.
    """
    given = {}
    for name in kind.__struct_fields__:
        value = command.get(name)
        if value is not None:
            given[name] = tuple(value) if isinstance(value, list) else value
    return kind(**(given | others))


def finish(result: Result[Any], as_json: bool, form: str = "text", **options: bool) -> NoReturn:
    """Show the result of a use case, its text with ``verbose`` where the command has that; end the command with its exit code."""
    raise typer.Exit(deliver(result, as_json=as_json, form=form, **options))


def one_form(as_json: bool, form: str) -> None:
    """Refuse ``--json`` beside a ``--format``, before anything is done: each is all of standard output.

    Raises:
        SplatfixError: ``json-and-format`` (exit code 2).
    """
    if as_json and form != "text":
        raise SplatfixError.of("cli.json-and-format", form=form)


def confirm_unless(yes: bool, question: str, *, default: bool = True) -> None:
    """Ask on a terminal before something is changed; elsewhere nobody could answer.

    Raises:
        Abort: the answer is no, or there is none.
        KeyboardInterrupt: Ctrl-C, with what that means.
    """
    if yes or not is_terminal():
        return
    try:
        agreed = typer.confirm(question, default=default)
    except typer.Abort as stop:  # for Ctrl-C too
        if isinstance(stop.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt("Interrupted: nothing was changed.") from None
        raise
    if not agreed:
        raise typer.Abort


def file_to_write(path: Path | None) -> Path | None:
    """A file that a command will write, in a folder that exists: a typing error makes no folder.

    Raises:
        SplatfixError: ``cannot-save`` (exit code 2), before anything else is done.
    """
    if path is None:
        return None
    if path.is_dir():
        todo = say(f"Name a file in it: {path / 'facts.json'}")
        raise usage_error("cannot-save", f"{path} is a folder.", todo)
    if not path.parent.is_dir():
        todo = say("Create it first, or name a file elsewhere.")
        raise usage_error("cannot-save", f"There is no folder {path.parent}.", todo)
    return path


def folder_to_write(folder: Path) -> Path:
    """A folder that a command will write into; the command creates it where it does not exist yet.

    Raises:
        SplatfixError: ``cannot-write`` (exit code 3) where that is plainly impossible, before anything is started.
    """
    nearest = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    problem = ""
    if not nearest.is_dir():
        problem = "is not a folder"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        problem = "cannot be written to"
    if problem:
        raise SplatfixError.of("cli.unwritable-out", nearest=nearest, problem=problem)
    return folder
