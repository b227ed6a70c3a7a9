"""How a result is marked, the same in every form: a sign, a colour on the terminal, a class of the style sheet; and what else
stands in the cells of a table."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

from msgspec import Struct

ABSENT = "–"
"""What was not measured, or does not exist."""


class Mark(Enum):
    """A mark; its value is the class that the style sheet of the pages has for it."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    """Measured, and it decides nothing."""
    NONE = "none"
    """Not measured, or skipped."""
    UNKNOWN = "unknown"
    """A fact is missing. A colour of its own: unlike UNSURE it may change once the fact is there."""
    WARNING = "warning"
    RESERVATION = "reservation"
    CRASH = "crash"

    @property
    def sign(self) -> str:
        """One character: colours alone say nothing to who does not see them."""
        return _SHOWN[self][0]

    @property
    def markup(self) -> str:
        """The sign as rich's markup."""
        sign, style = _SHOWN[self]
        return f"[{style}]{sign}[/]"


# Each mark's sign, and rich's style of it.
_SHOWN = {
    Mark.GOOD: ("✓", "green"),
    Mark.BAD: ("✗", "bold red"),
    Mark.UNSURE: ("?", "bold yellow"),
    Mark.NONE: ("–", "dim"),
    Mark.UNKNOWN: ("?", "magenta"),
    Mark.WARNING: ("!", "yellow"),
    Mark.RESERVATION: ("!", "bold yellow"),
    Mark.CRASH: ("☠", "bold red"),
}


class Badge(Struct, frozen=True):
    """A result in a word or two."""

    mark: Mark
    text: str
    plain: str = ""
    """The text where neither a colour nor a sign stands beside it; "" is the same text."""


class Table(Struct, frozen=True):
    """Rows of as many cells as there are headers; of plain texts and badges, which each form escapes."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]
