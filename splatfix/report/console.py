"""The one console: everything splatfix prints for people goes through it."""

from __future__ import annotations

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


def show_error(problem: SplatfixError) -> None:
    """What happened, what it means, what to do, in that order."""
    from rich.markup import escape

    console = err()
    console.print(f"[bold red]error[/] [dim]({problem.code})[/] {escape(problem.what)}", soft_wrap=True)
    if problem.meaning:
        console.print(f"  {escape(problem.meaning)}", soft_wrap=True)
    for step in problem.todo:
        console.print(f"  [cyan]→[/] {escape(step)}", soft_wrap=True)
