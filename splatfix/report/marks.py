"""How a result is marked, the same in every form: a sign, a colour on the terminal, a class of the style sheet."""

from __future__ import annotations

from enum import Enum


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
        return _SIGNS[self]

    @property
    def markup(self) -> str:
        """The sign as rich's markup."""
        return f"[{_STYLES[self]}]{self.sign}[/]"


_SIGNS = {
    Mark.GOOD: "✓",
    Mark.BAD: "✗",
    Mark.UNSURE: "?",
    Mark.NONE: "–",
    Mark.UNKNOWN: "?",
    Mark.WARNING: "!",
    Mark.RESERVATION: "!",
    Mark.CRASH: "☠",
}
_STYLES = {
    Mark.GOOD: "green",
    Mark.BAD: "bold red",
    Mark.UNSURE: "bold yellow",
    Mark.NONE: "dim",
    Mark.UNKNOWN: "magenta",
    Mark.WARNING: "yellow",
    Mark.RESERVATION: "bold yellow",
    Mark.CRASH: "bold red",
}
