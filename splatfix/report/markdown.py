"""Renders a tree as Markdown (GitHub's): headings, lists and tables that show every text as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

from splatfix.core.visible import visible
from splatfix.report.tree import (
    Badge,
    Block,
    Code,
    Items,
    Link,
    Numbered,
    Paragraph,
    Pictures,
    Screen,
    Section,
    Strong,
    Text,
    inlines,
)


def render(document: Section) -> str:
    """The document, without an empty line at its end."""
    return "\n".join(_section(document, 1)).rstrip("\n") + "\n"


def _section(section: Section, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} {escape(section.title)}", "")
    for block in section.blocks:
        if isinstance(block, Section):
            yield from _section(block, level + 1)
        else:
            yield from _block(block)
            yield ""


def _block(block: Block) -> Iterator[str]:
    # Four blanks make a line of code, whatever it holds: no sign in it needs an escape.
    if isinstance(block, Paragraph):
        yield inline(block.text)
    elif isinstance(block, Items):
        for entry in block.entries:
            if isinstance(entry, Numbered):
                yield from (f"    1. {escape(step)}" for step in entry.entries)
            else:
                yield f"- {inline(entry)}"
    elif isinstance(block, Code):
        yield f"    {visible(block.line)}"
    elif isinstance(block, Pictures):
        yield from (f"![{escape(block.text)}]({target})" for target in block.targets)
    elif isinstance(block, Screen):
        # a fence longer than any in the text: nothing in it can end it
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", block.text)), default=0))
        yield from (f"{fence}text", block.text, fence)
    else:
        yield f"| {' | '.join(map(escape, block.headers))} |"
        yield f"|{'---|' * len(block.headers)}"
        for row in block.rows:
            yield f"| {' | '.join(map(inline, row))} |"


def inline(text: Text) -> str:
    """A text of a line or of a table's cell."""
    parts = []
    for piece in inlines(text):
        if isinstance(piece, Badge):
            parts.append(escape(piece.plain or piece.text))
        elif isinstance(piece, Link):
            parts.append(f"[{escape(piece.text)}]({piece.target})")
        elif isinstance(piece, Strong):
            parts.append(f"**{escape(piece.text)}**")
        else:
            parts.append(escape(piece))
    return "".join(parts)


def escape(text: str) -> str:
    """Text for a line or a table's cell of Markdown: it shows as it is, whatever it holds."""
    line = visible(text, keep="\n").replace("\n", " ")
    # a backslash needs one more only where it would escape the next sign, as CommonMark has it
    return re.sub(r"\\(?=[!-/:-@\[-`{-~]|$)|[`*<\[\]|]", r"\\\g<0>", line)


def link_target(path: str) -> str:
    """A relative path as the target of a link: nothing in it ends the link or is a scheme."""
    return quote(path, errors="surrogateescape")
