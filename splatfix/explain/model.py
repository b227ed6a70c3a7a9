"""What explaining a log gives: what failed and where, and its causes, each with the lines that prove it."""

import re
from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from splatfix.core.step import Step


class Certainty(str, Enum):
    """How far a log settles its cause."""

    NAMED = "named"
    """A line says so, or several point there, and nothing as strong points elsewhere."""
    LIKELY = "likely"
    """What there is points there and does not settle it."""
    UNKNOWN = "unknown"


class Line(Struct, frozen=True):
    """A line of the log, without colours and carriage returns."""

    number: int
    """Counted from 1."""
    text: str


class Frame(Struct, frozen=True):
    """A call in a traceback."""

    file: str
    line: int
    """0 where it is not said."""
    function: str
    package: str = ""
    """The installed package that the file belongs to, ``python`` for the standard library; "" for the user's own code."""


class Failure(Struct, frozen=True, kw_only=True):
    """What failed, and where: known also where no cause is."""

    speaker: str = ""
    """The program that reports it (``pip``, ``gcc``, ``python``, ``cuda``...); "" where none does."""
    step: str = ""
    """``resolve``, ``fetch``, ``metadata``, ``configure``, ``compile``, ``link``, ``import``, ``container``, ``start``, ``data``,
    ``training``, ``evaluation``, ``run``; ``none`` where the log ends well; "" where it does not show."""
    package: str = ""
    source: str = ""
    """The folder or address that it is built from, where that is named; else the package."""
    file: str = ""
    """What was compiled, configured or run, with the line where one is named."""
    iteration: int | None = None
    error: tuple[str, ...] = ()
    """The first error that is one, with what belongs to it; where none is reported, the last lines."""
    line_number: int = 0
    """Where the error stands in the log."""
    hidden: bool = False
    """What is reported is that something else failed, whose own words the log lacks."""
    frames: tuple[Frame, ...] = ()
    versions: Mapping[str, str] = {}
    """``python``, ``torch``, ``cuda``, ``gcc``, ``gpu``... as the log names them."""

    @property
    def tags(self) -> frozenset[str]:
        """What wordings and advice may ask for: ``by:gcc``, ``step:compile``, ``in:gsplat`` (its package, or one of the frames),
        ``hidden``."""
        packages = {self.package, *(frame.package for frame in self.frames)}
        tags = {
            f"in:{re.split(r'[.=<>~! ]', name)[0].lower().replace('-', '_')}" for name in packages if name
        }
        tags |= {f"by:{self.speaker}", f"step:{self.step}", *(["hidden"] if self.hidden else [])}
        return frozenset(tags)


class FailureCause(Struct, frozen=True):
    """One class of failure that fits the log."""

    name: str = field(name="class")
    """The failure class."""
    certainty: Certainty
    lines: tuple[str, ...]
    """The lines that say it, in the order of the log."""
    line_numbers: tuple[int, ...]
    """Where each of them stands in the log, counted from 1."""
    why: str
    fix: tuple[Step, ...]
    settle: tuple[Step, ...] = ()
    """What would tell whether it is this, where that is not settled."""
    consequence_of: str = ""
    """The class that this is a consequence of; "" where it is a cause of its own."""


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a command failed, by its log."""

    certainty: Certainty = Certainty.UNKNOWN
    """Of the first cause."""
    failure: Failure = Failure()
    causes: tuple[FailureCause, ...] = ()
    """Ranked, the likeliest first, consequences below their causes; empty where there is none."""
    collect: tuple[Step, ...] = ()
    """What to give or to run where no cause is named."""
    lines_read: int = 0
    bytes_read: int = 0
    dropins: tuple[str, ...] = ()
    """Modules the log names that splatfix has a drop-in with CUDA code for."""
    success: str = ""
    """The line with which it ends, where that says that all went well; "" where it does not, or a cause is named."""


class KnownClass(Struct, frozen=True):
    """A class of failure that can be recognised."""

    name: str = field(name="class")
    definition: str
    why: str
    fix: str
    checks: tuple[str, ...]
    """Codes of the checks of ``diagnose`` that predict it."""
    speakers: tuple[str, ...]
    """Programs, or kinds of them, from which it is heard."""
    sources: tuple[str, ...]
