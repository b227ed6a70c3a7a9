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
from rich.table import Table as Grid
from rich.text import Text

from splatfix.core.errors import SplatfixError
from splatfix.core.step import BLANKS, Command, Step
from splatfix.core.visible import visible
from splatfix.report.marks import ABSENT, Badge, Mark, Table

_LEAST = 24
"""Columns that a hanging indent must leave to the text: narrower ones are harder to read than a line of their own."""

_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"(?:\\.|[^"\\])*")+""")
"""A word of a shell's command line, its quotes included."""


@cache
def out() -> Console:
    """Return standard output: plain when it is no terminal, and then every line is whole."""
    return _Console()


@cache
def err() -> Console:
    """Return standard error: errors and progress, so that ``--json`` on standard output stays pure."""
    return _Console(stderr=True)


class _Console(Console):
    """Shows what a terminal would obey, hide or reorder; only rich's own styles and cursor movements go out as they are.
    Whatever came here unescaped is caught, so nothing depends on every caller."""

    def __init__(self, *, width: int | None = None, **options: Any) -> None:
        # rich takes COLUMNS=0 and COLUMNS=wide for a width, and a pipe for 80 columns
        columns = os.environ.get("COLUMNS", "")
        if width is None and columns.isdecimal():
            width = int(columns) or None
        super().__init__(highlight=False, emoji=False, width=width, **options)
        if width is None and not self.is_terminal:
            self.width = 1 << 16  # grep and people who read a log want the lines unbroken

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


def page(file: IO[str], width: int, **options: Any) -> Console:
    """Return a console that writes lines of that width into a file, plain ones unless rich's ``options`` say otherwise."""
    return _Console(file=file, width=width, color_system=None, **options)


def escape(text: str, *, lines: bool = False) -> str:
    """Return a name or message as markup that shows it as it is, control characters included (``\\x1b``): in one line, or with
    ``lines`` in several, such as those of a compiler."""
    return markup.escape(visible(text, keep=_LAYOUT if lines else ""))


def shorten_home(text: str) -> str:
    """Return a text with the user's home folder written as ``~``; commands on the terminal, and JSON, keep the whole path."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    if len(home) < 2:  # "/" is the home of containers' users, and "~" of who has none
        return text
    # only a path that begins there: /home/me2 and /mnt/home/me are other folders
    begins = r"(?:(?<![\w./~-])|(?<=-[BIL])|(?<=://))"
    return re.sub(rf"{begins}{re.escape(home)}(?![\w-]|\.\w)", "~", text)


def prose(console: Console, head: str, body: str, hang: int | None = None) -> None:
    """Print ``body`` behind ``head`` (both markup: a mark, a label). Nothing is broken inside a word, such as a path, which rich
    would fold.

    Args:
        hang: columns before the following lines; by default they stand under the first, or where that leaves too little room
            further to the left.
    """
    label = Text.from_markup(visible(head), emoji=False)
    if hang is None:
        hang = label.cell_len
        if console.width - hang < _LEAST:
            hang = min(hang, 4)
    # rich would drop some of what is not printable
    text = Text.from_markup(visible(shorten_home(body), keep=_LAYOUT), emoji=False)
    for line in _lines(text, max(console.width - hang, 1), label.cell_len - hang):
        console.print(label + line, soft_wrap=True)
        label = Text(" " * hang)


def marked(console: Console, mark: Mark, body: str, *, indent: int = 2) -> None:
    """Print ``body`` (markup) behind a mark."""
    prose(console, f"{' ' * indent}{mark.markup} ", body)


def section(console: Console, title: str) -> None:
    """Print a bold title below an empty line."""
    console.print(f"\n[bold]{title}[/]")


def pairs(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    """Print names with their values, below each other; without those that have none."""
    for name, value in rows:
        if value:
            prose(console, f"  {escape(name):<13} ", escape(value))


def notes(console: Console, texts: Iterable[str], indent: int = 0) -> None:
    """Print what the user should know although it stops nothing."""
    for text in texts:
        prose(console, f"{' ' * indent}[yellow]Note:[/] ", escape(text))


def show_todo(
    console: Console, steps: Iterable[Step], *, indent: int, windows: bool = os.name == "nt"
) -> None:
    """Print things to do, in order, each command on a line of its own; one without a text stands below the step before."""
    below = 0
    for step in steps:
        margin = " " * (indent + below)
        if step.text:
            margin = " " * indent
            prose(console, f"{margin}[cyan]→[/] ", escape(step.text))
            margin, below = f"{margin}  ", 2
        if step.command:
            show_command(console, step.command, indent=len(margin), windows=windows)


def show_command(console: Console, command: Command, *, indent: int, windows: bool = os.name == "nt") -> None:
    """Print a command on lines of its own, runnable as it is: where it is too long it goes on after the shell's own sign. Lines
    break between words only, and an option stays with its value."""
    groups: list[str] = []
    # The quotes of a word with blanks are part of it, so that a broken line can be pasted as it is.
    for word in _WORD.findall(command.shell(windows=windows)):
        # an option with its value, the program with its subcommand
        takes_value = len(groups) == 1 or (groups and groups[-1].startswith("-"))
        if takes_value and not word.startswith("-") and " " not in groups[-1]:
            groups[-1] = f"{groups[-1]} {word}"
        else:
            groups.append(word)
    hang = " " * (indent + 2)
    rows: list[str] = []
    for group in groups:
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


def table(console: Console, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns of plain text; names in the first stay whole."""
    drawn = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        drawn.add_column(Text(visible(heading)), no_wrap=not drawn.columns)
    for row in rows:
        drawn.add_row(*(Text(visible(str(cell))) for cell in row))
    console.print(drawn)


def show_rows(console: Console, shown: Table) -> None:
    """Print a table that is wider than a terminal: a line for each row, its cells behind their headers, then its note."""
    for name, *cells in shown.rows:
        mark, parts = " ", list[str]()
        for header, cell in zip(shown.headers[1:], cells, strict=True):
            if isinstance(cell, Badge):
                mark = cell.mark.markup
                parts.insert(0, cell.text)
            elif cell != ABSENT:
                parts.append(f"{header} {cell}" if len(cells) > 1 else cell)
        prose(console, f"  {mark} ", f"{escape(name)}: {escape('; '.join(parts))}")
    if shown.note:
        prose(console, "  ", f"[dim]{escape(shown.note)}[/]")


def _lines(text: Text, width: int, used: int) -> list[Text]:
    """Return the lines of a text, cut between words; a word that is longer than ``width`` has a line for itself. Of the first so
    many columns are ``used``."""
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        cuts = []
        for word in re.finditer(r"\S+\s*", line.plain):
            if used > 0 and used + cell_len(word.group().rstrip()) > width:
                cuts.append(word.start())
                used = 0
            used += cell_len(word.group())
        lines.extend(line.divide(cuts))
        used = 0
    for line in lines:
        line.rstrip()
    return lines


def show_error(problem: SplatfixError, console: Console | None = None, *, whose: str = "") -> None:
    """Print what happened, what it means, what to do, in that order; on standard error where no console is named."""
    console = console or err()
    prose(console, "", f"[bold red]error[/] [dim]({problem.code})[/] {escape(whose + problem.what)}", hang=2)
    if problem.meaning:
        prose(console, "  ", escape(problem.meaning, lines=True))
    show_todo(console, problem.todo, indent=2)
