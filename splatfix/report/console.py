"""The one console: everything splatfix prints for people goes through it."""

from __future__ import annotations

import codecs
import io
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, NoReturn

from splatfix.core.errors import SplatfixError

if TYPE_CHECKING:
    from rich.console import Console


@cache
def out() -> Console:
    """Standard output. Plain when it is no terminal, and then every line is whole."""
    return _console(to_stderr=False)


@cache
def err() -> Console:
    """Standard error: errors and progress, so that ``--json`` on standard output stays pure."""
    return _console(to_stderr=True)


_ENDLESS = 1 << 16
"""Columns of what is no terminal: who reads it, or searches in it, has the lines as they were meant."""


def _console(*, to_stderr: bool) -> Console:
    from rich.console import Console

    columns = os.environ.get("COLUMNS", "")
    asked = int(columns) if columns.isdecimal() and int(columns) else None
    made = Console(stderr=to_stderr, highlight=False, emoji=False, width=asked)
    if asked is None and not made.is_terminal:
        made.width = _ENDLESS
    return made


_PLAIN = {"✓": "+", "✗": "x", "–": "-", "→": "->", "☠": "!", "·": ".", "…": "...", "×": "x"}


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: a plain sign for each of ours that a stream cannot show, ``?`` for anything else."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def be_plain_where_needed() -> None:
    """Let standard output and error fall back to plain signs where their encoding lacks ours (cp1252, ASCII)."""
    codecs.register_error("splatfix-plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and (stream.encoding or "").lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="splatfix-plain")


class _EndsWhenNobodyReads(io.TextIOWrapper):
    """Standard output that ends the process quietly when its reader has gone (`splatfix ... | head`)."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            _leave()

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            _leave()


def _leave() -> NoReturn:
    forget_output()
    raise SystemExit(141)  # 128 + SIGPIPE, as a shell tells it of the programs that the signal ends


def forget_output() -> None:
    """Send what still waits to be printed nowhere, so that the interpreter's last flush finds nothing to complain of."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def end_when_nobody_reads() -> None:
    """A pipe that was closed is neither a failure found nor a defect: end with 141, and say nothing."""
    stream = sys.stdout
    if os.name == "posix" and type(stream) is io.TextIOWrapper and stream is sys.__stdout__:
        encoding, errors, by_line = stream.encoding, stream.errors, stream.line_buffering
        sys.stdout = _EndsWhenNobodyReads(stream.detach(), encoding, errors, line_buffering=by_line)
        sys.__stdout__ = sys.stdout  # type: ignore[misc]


def show_error(problem: SplatfixError) -> None:
    """What happened, what it means, what to do, in that order."""
    from rich.markup import escape

    from splatfix.report.layout import paragraph, prose, show_step

    console = err()
    said = f"[bold red]error[/] [dim]({problem.code})[/] {escape(problem.what)}"
    paragraph(console, said, first=0, then=2)
    if problem.meaning:
        prose(console, "  ", escape(problem.meaning))
    for step in problem.todo:
        show_step(console, step, indent=2)
