"""The console: standard output and error for people, and how lines are laid out for its width.

Prose wraps between words under its own beginning; commands and paths stay whole. Nothing else writes to a terminal, so
that names and messages of strangers are text there, whatever they hold: see :func:`escape`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import IO, Any

from rich import markup
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from splatfix.core.errors import SplatfixError
from splatfix.core.step import BLANKS, Command, Step
from splatfix.core.visible import visible

_LEAST = 24
"""Columns that a hanging indent must leave to the text."""

_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"(?:\\.|[^"\\])*")+""")
"""A word of a shell's command line, its quotes included."""


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


class _Console(Console):
    """Shows what a terminal would obey, hide or reorder; only rich's own styles and cursor movements go out as they are.

    Whatever came here unescaped is caught, so nothing depends on every caller.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """A string, before rich drops bells and carriage returns from it."""
        return super().render_str(visible(text, keep=_LAYOUT), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Any renderable."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible(segment.text, keep=_LAYOUT), segment.style)


_LAYOUT = "\n\t"


def _console(*, to_stderr: bool) -> Console:
    columns = os.environ.get("COLUMNS", "")
    asked = int(columns) if columns.isdecimal() and int(columns) else None
    made = _Console(stderr=to_stderr, width=asked)
    if asked is None and not made.is_terminal:
        made.width = _ENDLESS
    return made


def page(file: IO[str], width: int, **options: Any) -> Console:
    """A console that writes lines of that width into a file, plain ones unless rich's ``options`` say otherwise."""
    return _Console(file=file, width=width, color_system=None, **options)


def escape(text: str) -> str:
    """A name or message as markup that shows it in one line as it is, control characters included (``\\x1b``)."""
    return markup.escape(visible(text))


def escape_lines(text: str) -> str:
    """The same for a text of several lines, such as those of a compiler."""
    return markup.escape(visible(text, keep=_LAYOUT))


def _text(marked_up: str) -> Text:
    """Markup as text; rich would drop some of what is not printable."""
    return Text.from_markup(visible(shorten_home(marked_up), keep=_LAYOUT), emoji=False)


def shorten_home(text: str) -> str:
    """Prose with the user's home folder written as ``~``; for commands the whole path is kept."""
    home = os.environ.get("HOME", "") if os.name == "posix" else ""
    if len(home) < 2:
        return text
    return re.sub(rf"(?<![\w./~-]){re.escape(home)}(?=/)", "~", text)


def prose(console: Console, head: str, body: str) -> None:
    """Print ``body`` behind ``head`` (both markup: a mark, a label), its following lines under its first.

    Nothing is broken inside a word, such as a path. Where ``head`` leaves too little room, the body stands below it.
    """
    first, text = Text.from_markup(visible(head), emoji=False), _text(body)
    hang = first.cell_len
    if console.width - hang < _LEAST and text.cell_len > console.width - hang:
        margin = hang - len(first.plain.lstrip())
        first.rstrip()
        if first.plain:
            console.print(first, soft_wrap=True)
        hang = margin + 2 if first.plain else min(margin, 8)
        first = Text(" " * hang)
    for line in _lines(text, max(console.width - hang, 1)):
        console.print(first + line, soft_wrap=True)
        first = Text(" " * hang)


def paragraph(console: Console, body: str, *, first: int, then: int) -> None:
    """Print markup indented by ``first`` columns, the lines after it by ``then``; broken where :func:`prose` breaks it."""
    text = _text(body)
    for number, line in enumerate(_lines(text, max(console.width - then, 1))):
        console.print(Text(" " * (then if number else first)) + line, soft_wrap=True)


def show_step(console: Console, step: Step, *, indent: int, windows: bool = os.name == "nt") -> None:
    """One thing to do: its text, then its command on a line of its own."""
    margin = " " * indent
    if step.text:
        prose(console, f"{margin}[cyan]→[/] ", escape(step.text))
        margin += "  "
    if step.command:
        show_command(console, step.command, indent=len(margin), windows=windows)


def show_todo(
    console: Console, steps: Sequence[Step], *, indent: int, windows: bool = os.name == "nt"
) -> None:
    """Things to do, in order; a command without a text of its own stands below that of the step before."""
    below = 0
    for step in steps:
        show_step(console, step, indent=indent + (0 if step.text else below), windows=windows)
        below = 2 if step.text else below


def show_command(console: Console, command: Command, *, indent: int, windows: bool = os.name == "nt") -> None:
    """A command on lines of its own, runnable as it is: where it is too long it goes on after the shell's own sign.

    Lines break between words only, and an option stays with its value.
    """
    line = command.shell(windows=windows)
    hang = " " * (indent + 2)
    groups: list[str] = []
    for word in _WORD.findall(line):
        joins = groups and not word.startswith("-") and (len(groups) == 1 or groups[-1].startswith("-"))
        groups[-1:] = [f"{groups[-1]} {word}"] if joins and " " not in groups[-1] else [*groups[-1:], word]
    rows = [groups[0]]
    for group in groups[1:]:
        margin = hang if len(rows) == 1 else f"{hang}  "
        fits = cell_len(f"{margin}{rows[-1]} {group}  ") <= console.width
        rows[-1:] = [f"{rows[-1]} {group}"] if fits else [rows[-1], group]
    end = " ^" if windows else " \\"
    for number, row in enumerate(rows):
        head = " " * indent + "$ " if number == 0 else f"{hang}  "
        tail = end if number + 1 < len(rows) else ""
        console.print(f"[cyan]{escape(head + row + tail)}[/]", soft_wrap=True)
    for name in command.blanks:
        prose(console, hang, f"[dim]{name}: {BLANKS[name]}[/]")


def table(console: Console, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns of plain text, of which the last is prose; where there is no room for them, each row is two paragraphs."""
    cells = [tuple(map(visible, row)) for row in rows]
    widths = [max(len(row[at]) for row in (tuple(headings), *cells)) for at in range(len(headings) - 1)]
    parallel = console.width - sum(width + 2 for width in widths) >= _LEAST
    if parallel:
        heading = "".join(f"{word:<{width}}  " for word, width in zip(headings, widths, strict=False))
        prose(console, f"[bold]{escape(heading)}[/]", f"[bold]{escape(headings[-1])}[/]")
    for row in cells:
        if parallel:
            head = "".join(f"{word:<{width}}  " for word, width in zip(row, widths, strict=False))
            prose(console, escape(head), escape(row[-1]))
        else:
            console.print(Text("  ".join(row[:-1]), style="bold"), soft_wrap=True)
            prose(console, "  ", escape(row[-1]))


def _lines(text: Text, width: int) -> list[Text]:
    return [piece for line in text.split("\n", allow_blank=True) for piece in _pieces(line, width)]


def _pieces(line: Text, width: int) -> list[Text]:
    """A line cut between words; a word that is longer than ``width`` has a line for itself."""
    cuts, used = [], 0
    for word in re.finditer(r"\S+\s*", line.plain):
        if used and used + cell_len(word.group().rstrip()) > width:
            cuts.append(word.start())
            used = 0
        used += cell_len(word.group())
    pieces = list(line.divide(cuts))
    for piece in pieces:
        piece.rstrip()
    return pieces


def show_error(problem: SplatfixError, whose: str = "") -> None:
    """What happened, what it means, what to do, in that order."""
    console = err()
    said = f"[bold red]error[/] [dim]({problem.code})[/] {escape(whose + problem.what)}"
    paragraph(console, said, first=0, then=2)
    if problem.meaning:
        prose(console, "  ", escape_lines(problem.meaning))
    show_todo(console, problem.todo, indent=2)
