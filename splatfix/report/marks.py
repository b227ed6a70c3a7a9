"""How a result is marked, the same in every form: a sign, a colour on the terminal, a class of the style sheet; and what else
stands in the cells of a table."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

from msgspec import Struct

ABSENT = "–"
"""What was not measured, or does not exist."""


class Mark(Enum):
    """A mark: its class in the style sheet of the pages, its sign (colours alone say nothing to who does not see them), and
    rich's style of it."""

    GOOD = ("good", "✓", "green")
    BAD = ("bad", "✗", "bold red")
    UNSURE = ("unsure", "?", "bold yellow")
    """Measured, and it decides nothing."""
    NONE = ("none", "–", "dim")
    """Not measured, or skipped."""
    UNKNOWN = ("unknown", "?", "magenta")
    """A fact is missing. A colour of its own: unlike UNSURE it may change once the fact is there."""
    WARNING = ("warning", "!", "yellow")
    RESERVATION = ("reservation", "!", "bold yellow")
    CRASH = ("crash", "☠", "bold red")

    def __init__(self, css: str, sign: str, style: str) -> None:
        self.css, self.sign, self.style = css, sign, style
        self.markup = f"[{style}]{sign}[/]"


def mark_of(holds: bool | None) -> Mark:
    """Return the mark of an answer; None where it is not known."""
    return {True: Mark.GOOD, False: Mark.BAD, None: Mark.UNKNOWN}[holds]


class Badge(Struct, frozen=True):
    """A result in a word or two."""

    mark: Mark
    text: str


class Bar(Struct, frozen=True):
    """A share of 1, drawn."""

    share: float

    def __str__(self) -> str:
        return "█" * max(1, round(28 * min(self.share, 1.0)))


class Table(Struct, frozen=True):
    """Rows of as many cells as there are headers; of plain texts, badges and bars, which each form escapes."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Any]] = ()
    note: str = ""
    """What is to be known of them."""


Part = Table | Sequence[tuple[str, str]]
"""Below a title: a table, or names with their values."""
