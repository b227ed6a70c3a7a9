"""What explaining a log gives: ranked causes, each with the lines that prove it."""

from msgspec import Struct, field

from splatfix.core.step import Step

LIKELY = 0.5
"""Confidence from which on a cause is likelier than not. What is less likely is not told: it would be a guess."""
SURE = 0.8
"""Confidence from which on a cause is named as the cause: by one line that says so in eight logs of ten, or by several.

Of 426 unseen logs 39 came to 0.65 to 0.8, by one line of many possible causes, and 7 of those were wrong; above it 6 of 188.
"""


class Line(Struct, frozen=True):
    """A line of the log, without colours and carriage returns."""

    number: int
    """Counted from 1."""
    text: str


class FailureCause(Struct, frozen=True):
    """One class of failure that fits the log."""

    name: str = field(name="class")
    """The failure class."""
    confidence: float
    """0 to 1: the share of logs with this evidence that have this cause."""
    lines: tuple[str, ...]
    """The lines that say it, in the order of the log."""
    line_numbers: tuple[int, ...]
    """Where each of them stands in the log, counted from 1."""
    why: str
    fix: tuple[Step, ...]
    consequence_of: str = ""
    """The class that this is a consequence of; "" where it is a cause of its own."""


class Explanation(Struct, frozen=True):
    """Why a command failed, by its log."""

    causes: tuple[FailureCause, ...]
    """Ranked, the likeliest first, each likelier than not or a consequence of one; empty where there is none."""
    first_error: tuple[str, ...]
    """The first lines of the log that report an error, known or not."""
    lines_read: int
    bytes_read: int
    dropins: tuple[str, ...] = ()
    """Modules the log names that splatfix has a drop-in with CUDA code for."""
    success: str = ""
    """The line with which it ends, where that says that all went well; "" where it does not, or a cause is named."""

    @property
    def recognised(self) -> bool:
        """Some cause is sure enough to be named as the cause."""
        return bool(self.causes) and self.causes[0].confidence >= SURE


class KnownClass(Struct, frozen=True):
    """A class of failure that can be recognised."""

    name: str = field(name="class")
    definition: str
    why: str
    fix: str
    checks: tuple[str, ...]
    """Codes of the checks of ``diagnose`` that predict it."""
    wordings: int
    """How many wordings of tools are known for it."""
    sources: tuple[str, ...]
