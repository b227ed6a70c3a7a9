"""A document as a small tree, which :mod:`splatfix.report.markdown`, :mod:`splatfix.report.latex` and
:mod:`splatfix.report.html` render.

Text in it is plain: each renderer escapes it, so that no name of a stranger's is markup anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splatfix.report.marks import Mark

ABSENT = "–"
"""What was not measured, or does not exist."""


@dataclass(frozen=True)
class Badge:
    """A result in a word or two."""

    mark: Mark
    text: str
    plain: str = ""
    """The text where neither a colour nor a sign stands beside it; "" is the same text."""


@dataclass(frozen=True)
class Link:
    """A text that leads somewhere."""

    text: str
    target: str
    """A URL, quoted already."""


@dataclass(frozen=True)
class Strong:
    """A text in bold."""

    text: str


Inline = str | Badge | Link | Strong
Text = Inline | Sequence[Inline]
"""One piece, or several that follow each other."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    text: Text


@dataclass(frozen=True)
class Numbered:
    """A numbered list within a list."""

    entries: Sequence[str]


@dataclass(frozen=True)
class Items:
    """A list."""

    entries: Sequence[Text | Numbered]


@dataclass(frozen=True)
class Table:
    """Rows of as many cells as there are headers."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Text]]


@dataclass(frozen=True)
class Code:
    """A command for a shell, on a line of its own."""

    line: str


@dataclass(frozen=True)
class Pictures:
    """Images beside the document."""

    text: str
    """What they show, for who does not see them."""
    targets: Sequence[str]


@dataclass(frozen=True)
class Screen:
    """What a terminal shows, as it is."""

    text: str


Block = Paragraph | Items | Table | Code | Pictures | Screen


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[Block | Section]


def inlines(text: Text) -> Sequence[Inline]:
    """The pieces of a text."""
    if isinstance(text, (str, Badge, Link, Strong)):
        return (text,)
    return text


def section_if(title: str, blocks: Sequence[Block | Section]) -> Sequence[Section]:
    """A section, or nothing where it would be empty."""
    return (Section(title, blocks),) if blocks else ()


def items_if(entries: Sequence[Text]) -> Sequence[Items]:
    """A list, or nothing where it would be empty: LaTeX refuses one without items."""
    return (Items(entries),) if entries else ()
