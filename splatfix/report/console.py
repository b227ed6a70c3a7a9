"""The console: standard output and error for people, and how lines are laid out for its width.

Prose wraps between words under its own beginning; commands and paths stay whole. Nothing else writes to a terminal, so
that names and messages of strangers are text there, whatever they hold: see :func:`escape`.
"""

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
from splatfix.report.marks import Mark

_LEAST = 24
"""Columns that a hanging indent must leave to the text: narrower ones are harder to read than a line of their own."""

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


class _Console(Console):
    """Shows what a terminal would obey, hide or reorder; only rich's own styles and cursor movements go out as they are.
    Whatever came here unescaped is caught, so nothing depends on every caller."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        # before rich drops bells and carriage returns from it
        return super().render_str(visible(text, keep=_LAYOUT), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            # control segments are rich's own: the cursor of a progress bar
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible(segment.text, keep=_LAYOUT), segment.style)


_LAYOUT = "\n\t"


def _console(*, to_stderr: bool) -> Console:
    # rich takes COLUMNS=0 and COLUMNS=wide for a width, and a pipe for 80 columns
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return _Console(stderr=to_stderr, width=int(columns))
    console = _Console(stderr=to_stderr)
    if not console.is_terminal:
        console.width = 1 << 16  # grep and people who read a log want the lines unbroken
    return console


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
    """Text with the user's home folder written as ``~``; commands on the terminal, and JSON, keep the whole path."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    if len(home) < 2:  # "/" is the home of containers' users, and "~" of who has none
        return text
    # only a path that begins there: /home/me2 and /mnt/home/me are other folders
    begins = r"(?:(?<![\w./~-])|(?<=-[BIL])|(?<=://))"
    return re.sub(rf"{begins}{re.escape(home)}(?![\w-]|\.\w)", "~", text)


def prose(console: Console, head: str, body: str) -> None:
    """Print ``body`` behind ``head`` (both markup: a mark, a label), its following lines under its first, or below it where it
    leaves too little room. Nothing is broken inside a word, such as a path."""
    label, text = Text.from_markup(visible(head), emoji=False), _text(body)
    hang = label.cell_len
    room = console.width - hang
    if room < _LEAST and text.cell_len > room:
        margin = hang - len(label.plain.lstrip())
        label.rstrip()
        if label.plain:
            console.print(label, soft_wrap=True)
            hang = margin + 2
        else:
            hang = min(margin, 8)
        label = Text(" " * hang)
    for line in _lines(text, max(console.width - hang, 1)):
        console.print(label + line, soft_wrap=True)
        label = Text(" " * hang)


def marked(console: Console, mark: Mark, body: str, *, indent: int = 2) -> None:
    """Print ``body`` (markup) behind a mark."""
    prose(console, f"{' ' * indent}{mark.markup} ", body)


def section(console: Console, title: str) -> None:
    """Print a bold title below an empty line."""
    console.print(f"\n[bold]{title}[/]")


def paragraph(console: Console, body: str, *, first: int, then: int) -> None:
    """Print markup indented by ``first`` columns, the lines after it by ``then``; broken where :func:`prose` breaks it."""
    # soft_wrap below: the lines are broken already, and rich would break paths
    indent = first
    for line in _lines(_text(body), max(console.width - then, 1)):
        console.print(Text(" " * indent) + line, soft_wrap=True)
        indent = then


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
        if step.text:
            show_step(console, step, indent=indent, windows=windows)
            below = 2
        else:
            show_step(console, step, indent=indent + below, windows=windows)


def show_command(console: Console, command: Command, *, indent: int, windows: bool = os.name == "nt") -> None:
    """A command on lines of its own, runnable as it is: where it is too long it goes on after the shell's own sign. Lines
    break between words only, and an option stays with its value."""
    hang = " " * (indent + 2)
    rows: list[str] = []
    for group in _option_groups(command.shell(windows=windows)):
        margin = hang if len(rows) <= 1 else f"{hang}  "
        if rows and cell_len(f"{margin}{rows[-1]} {group}  ") <= console.width:
            rows[-1] = f"{rows[-1]} {group}"
        else:
            rows.append(group)
    continued = " ^" if windows else " \\"
    head = f"{' ' * indent}$ "
    for row in rows[:-1]:
        console.print(f"[cyan]{escape(head + row + continued)}[/]", soft_wrap=True)
        head = f"{hang}  "
    console.print(f"[cyan]{escape(head + rows[-1])}[/]", soft_wrap=True)
    for name in command.blanks:
        prose(console, hang, f"[dim]{name}: {BLANKS[name]}[/]")


def _option_groups(line: str) -> list[str]:
    """The words of a command line, each option together with its value, the program with its subcommand."""
    groups: list[str] = []
    # The quotes of a word with blanks are part of it, so that a broken line can be pasted as it is.
    for word in _WORD.findall(line):
        takes_value = len(groups) == 1 or (groups and groups[-1].startswith("-"))
        if takes_value and not word.startswith("-") and " " not in groups[-1]:
            groups[-1] = f"{groups[-1]} {word}"
        else:
            groups.append(word)
    return groups


def table(console: Console, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns of plain text, of which the last is prose; where there is no room for them, each row is two paragraphs."""
    cells = [tuple(map(visible, row)) for row in rows]
    widths = []
    for column in list(zip(headings, *cells, strict=True))[:-1]:
        widths.append(max(map(len, column)))

    def aligned(row: Sequence[str]) -> str:
        padded = (f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False))
        return escape("".join(padded))

    if console.width - sum(width + 2 for width in widths) >= _LEAST:
        prose(console, f"[bold]{aligned(headings)}[/]", f"[bold]{escape(headings[-1])}[/]")
        for row in cells:
            prose(console, aligned(row), escape(row[-1]))
        return
    # without room the headings go: under each other, the cells no longer stand below them
    for row in cells:
        console.print(Text("  ".join(row[:-1]), style="bold"), soft_wrap=True)
        prose(console, "  ", escape(row[-1]))


def _lines(text: Text, width: int) -> list[Text]:
    """The lines of a text, cut between words; a word that is longer than ``width`` has a line for itself."""
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        cuts, used = [], 0
        for word in re.finditer(r"\S+\s*", line.plain):
            if used and used + cell_len(word.group().rstrip()) > width:
                cuts.append(word.start())
                used = 0
            used += cell_len(word.group())
        lines.extend(line.divide(cuts))
    for line in lines:
        line.rstrip()
    return lines


def show_error(problem: SplatfixError, console: Console | None = None, *, whose: str = "") -> None:
    """What happened, what it means, what to do, in that order; on standard error where no console is named."""
    console = console or err()
    headline = f"[bold red]error[/] [dim]({problem.code})[/] {escape(whose + problem.what)}"
    paragraph(console, headline, first=0, then=2)
    if problem.meaning:
        prose(console, "  ", escape_lines(problem.meaning))
    show_todo(console, problem.todo, indent=2)
