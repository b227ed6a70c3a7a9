"""The one console: everything splatfix prints for people goes through it."""

from __future__ import annotations

import codecs
import sys
from functools import cache
from typing import TYPE_CHECKING

from splatfix.core.errors import SplatfixError

if TYPE_CHECKING:
    from rich.console import Console


@cache
def out() -> Console:
    """Standard output. Plain when it is no terminal; commands are never cut or wrapped inside a word."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


@cache
def err() -> Console:
    """Standard error: errors and progress, so that ``--json`` on standard output stays pure."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


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


def show_error(problem: SplatfixError) -> None:
    """What happened, what it means, what to do, in that order."""
    from rich.markup import escape

    console = err()
    console.print(f"[bold red]error[/] [dim]({problem.code})[/] {escape(problem.what)}", soft_wrap=True)
    if problem.meaning:
        console.print(f"  {escape(problem.meaning)}", soft_wrap=True)
    for step in problem.todo:
        console.print(f"  [cyan]→[/] {escape(step)}", soft_wrap=True)
