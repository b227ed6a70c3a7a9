"""What every use case returns, and the one place that shows it: as text for people, or as one JSON document."""

from __future__ import annotations

import contextlib
import html
import io
import sys
import traceback
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from msgspec import Struct
from rich.console import Console

from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.files import dumps
from splatfix.core.redact import without_credentials
from splatfix.core.streams import discard_output
from splatfix.knowledge import Arch, RequestedTarget, parse_requested, parse_targets
from splatfix.report import console as consoles
from splatfix.report.forms import envelope, writer_of

T = TypeVar("T", bound=Struct)

_PAGE_WIDTH = 100
"""Columns of the text of a result that is no terminal's."""


class Result(Struct, Generic[T], frozen=True):
    """The outcome of one command: a document and an exit code."""

    command: str
    content: T
    """The document without its envelope. Every form is made of it alone, see :mod:`splatfix.report.forms`."""
    exit_code: int = Exit.OK
    error: SplatfixError | None = None
    """A problem that ended the command although it has something to show."""

    def __getattr__(self, name: str) -> Any:
        """Return a field of its document: ``diagnosis.findings``."""
        return getattr(self.content, name)

    def document(self) -> dict[str, Any]:
        """Return the JSON document that ``--json`` prints."""
        return envelope(self.command, self.exit_code, to_json(self.content), self.error)

    def show(self, console: Console, **options: bool) -> None:
        """Write the text for people; ``verbose``, where the command has ``-v``, leaves nothing out."""
        write = writer_of(self.content, "text")
        assert write is not None, "every document has a text"
        write(console, self.content, **options)

    def form(self, name: str) -> str:
        """Return it as ``markdown``, ``html`` or ``github``."""
        write = writer_of(self.content, name)
        assert write is not None, "the command line offers those that there are"
        return str(write(self.content))

    def __repr__(self) -> str:
        return f"<splatfix {self.command}, exit code {int(self.exit_code)}; print() shows it>"

    def __str__(self) -> str:
        """Return the text that the command prints, in lines of 100 columns."""
        return self._printed().export_text().rstrip()

    def _repr_html_(self) -> str:
        """How a notebook shows it: its page where it has one, else the text with its colors."""
        if writer_of(self.content, "html"):
            page = html.escape(self.form("html"))
            return f'<iframe srcdoc="{page}" style="width:100%;height:80vh;border:0"></iframe>'
        # without a background: the notebook's own may be light or dark
        frame = '<pre style="white-space:pre-wrap">{code}</pre>'
        return self._printed().export_html(inline_styles=True, code_format=frame)

    def _printed(self) -> Console:
        console = consoles.page(io.StringIO(), _PAGE_WIDTH, record=True)
        self.show(console)
        if self.error is not None:
            consoles.show_error(self.error, console)
        return console


def deliver(result: Result[Any], *, as_json: bool, form: str = "text", **options: bool) -> int:
    """Write a result to standard output, as JSON or in one of its forms (the text with its ``options``); return the exit code of
    the process."""
    if as_json:
        _write(dumps(result.document()))
    elif form != "text":
        _write(result.form(form))
    else:
        result.show(consoles.out(), **options)
        if result.error is not None:
            consoles.show_error(result.error)
    return int(result.exit_code)


def deliver_error(problem: SplatfixError, command: str, *, as_json: bool) -> int:
    """Write an error that ended a command; return the exit code of the process."""
    if as_json:
        try:
            _write(dumps(envelope(command, problem.exit_code, {}, problem)))
            sys.stdout.flush()
        except OSError:  # writing there is what failed (a full disk)
            discard_output()
        else:
            return int(problem.exit_code)
    with contextlib.suppress(OSError):  # standard error is gone too
        consoles.show_error(problem)
    return int(problem.exit_code)


def _write(text: str) -> None:
    """Write on standard output, as UTF-8 whatever the terminal's encoding is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)


def show_traceback() -> None:
    """Print the traceback of the exception at hand on standard error."""
    text = without_credentials(traceback.format_exc())
    consoles.err().print(text, markup=False, soft_wrap=True)


def show_message(text: str) -> None:
    """Print lines on standard error; those that begin with a ``$`` are commands and stay whole."""
    for line in text.split("\n"):
        if line.lstrip().startswith("$ "):
            consoles.err().print(line, markup=False, soft_wrap=True)
        else:
            consoles.prose(consoles.err(), "", consoles.escape(line))


def target_python(given: str | None) -> str:
    """The interpreter to work on; says on standard error which one it is where nobody named or activated it.

    Raises:
        SplatfixError: ``no-interpreter``, ``no-environment`` (exit code 2).
    """
    from splatfix.facts import choose_python

    choice = choose_python(given)
    if choice.python and given is None and not choice.activated:
        show_message(f"Environment: {choice.python}, {choice.why}.")
    return choice.interpreter()


def archs(targets: Iterable[str] | None) -> tuple[Arch, ...]:
    """Read ``--target`` values where only a named GPU makes sense, each once, in the order given.

    Raises:
        SplatfixError: ``unknown-arch`` (exit code 2), also for ``auto``.
    """
    try:
        return tuple(dict.fromkeys(arch for text in _each(targets) for arch in parse_targets(text)))
    except ValueError as error:
        raise usage_error("unknown-arch", str(error)) from error


def archs_or_auto(targets: Iterable[str] | None) -> tuple[RequestedTarget, ...]:
    """Read ``--target`` values as :func:`archs` does, ``auto`` for this machine's own GPUs among them."""
    try:
        return parse_requested(_each(targets))
    except ValueError as error:
        raise usage_error("unknown-arch", str(error)) from error


def _each(targets: Iterable[str] | None) -> Iterable[str]:
    if isinstance(targets, str):  # one name, and not its letters
        return (targets,)
    return targets or ()


def is_terminal() -> bool:
    """Standard output is a terminal, so that somebody can be asked."""
    return bool(consoles.out().is_terminal)
