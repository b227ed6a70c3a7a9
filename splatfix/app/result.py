"""What every use case returns, and the one place that shows it: as text for people, or as one JSON document."""

from __future__ import annotations

import contextlib
import html
import io
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.files import dumps
from splatfix.core.redact import without_credentials
from splatfix.core.streams import discard_output
from splatfix.knowledge import Arch, RequestedTarget, parse_requested, parse_targets
from splatfix.report.documents import envelope

if TYPE_CHECKING:
    from rich.console import Console

_PAGE_WIDTH = 100
"""Columns of the text of a result that is no terminal's."""


class Result(Struct, frozen=True):
    """The outcome of one command.

    ``data`` and ``text`` are functions because only one of them is needed, and either can take a while.
    """

    command: str
    data: Callable[[], Mapping[str, Any]]
    """Content of the JSON document, the envelope left out."""
    text: Callable[[Console], None]
    """Writes the same content for people."""
    exit_code: int = Exit.OK
    error: SplatfixError | None = None
    """A problem that ended the command although it has something to show."""
    forms: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """Other forms of the same, by name."""

    def document(self) -> dict[str, Any]:
        """The JSON document that ``--json`` prints."""
        return envelope(self.command, self.exit_code, self.data(), self.error)

    def __reduce__(self) -> Any:
        raise TypeError("A result holds functions that make its texts: pickle its document() instead.")

    def __repr__(self) -> str:
        return f"<splatfix {self.command}, exit code {int(self.exit_code)}; print() shows it>"

    def __str__(self) -> str:
        """The text that the command prints, in lines of 100 columns."""
        return self._printed().export_text().rstrip()

    def _repr_html_(self) -> str:
        """How a notebook shows it: its page where it has one, else the text with its colors."""
        if "html" in self.forms:
            page = html.escape(self.forms["html"]())
            return f'<iframe srcdoc="{page}" style="width:100%;height:80vh;border:0"></iframe>'
        # without a background: the notebook's own may be light or dark
        frame = '<pre style="white-space:pre-wrap">{code}</pre>'
        return self._printed().export_html(inline_styles=True, code_format=frame)

    def _printed(self) -> Console:
        console: Console = _consoles().page(io.StringIO(), _PAGE_WIDTH, record=True)
        self.text(console)
        if self.error is not None:
            _consoles().show_error(self.error, console)
        return console


def deliver(result: Result, *, as_json: bool, form: str = "") -> int:
    """Show a result on standard output, as text where neither JSON nor one of its forms is asked for; returns the exit code
    of the process."""
    if form in result.forms:
        _write(result.forms[form]())
    elif as_json:
        _write(dumps(result.document()))
    else:
        consoles = _consoles()
        result.text(consoles.out())
        if result.error is not None:
            consoles.show_error(result.error)
    return int(result.exit_code)


def deliver_error(problem: SplatfixError, command: str, *, as_json: bool) -> int:
    """Show an error that ended a command; returns the exit code of the process."""
    if as_json:
        try:
            _write(dumps(envelope(command, problem.exit_code, {}, problem)))
            sys.stdout.flush()
        except OSError:  # writing there is what failed (a full disk)
            discard_output()
        else:
            return int(problem.exit_code)
    with contextlib.suppress(OSError):  # standard error is gone too
        _consoles().show_error(problem)
    return int(problem.exit_code)


def _write(text: str) -> None:
    """Write on standard output, as UTF-8 whatever the terminal's encoding is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)


def _consoles() -> ModuleType:
    # --help and --version import this module, and need none of rich's console
    from splatfix.report import console

    return console


def show_traceback() -> None:
    """Print the traceback of the exception at hand on standard error."""
    text = without_credentials(traceback.format_exc())
    _consoles().err().print(text, markup=False, soft_wrap=True)


def show_message(text: str) -> None:
    """Print lines on standard error; those that begin with a ``$`` are commands and stay whole."""
    consoles = _consoles()
    for line in text.split("\n"):
        if line.lstrip().startswith("$ "):
            consoles.err().print(line, markup=False, soft_wrap=True)
        else:
            consoles.prose(consoles.err(), "", consoles.escape(line))


def show_question(question: str) -> None:
    """Print a question on standard output; the answer is typed behind it."""
    consoles = _consoles()
    consoles.out().print(consoles.escape(question), end="", soft_wrap=True)
    consoles.out().file.flush()


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
    return bool(_consoles().out().is_terminal)
