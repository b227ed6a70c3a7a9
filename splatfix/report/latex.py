r"""Renders a tree as LaTeX, to be read with ``\input`` into an article; it needs no package."""

from __future__ import annotations

import re
from collections.abc import Iterator

from splatfix.core.visible import visible
from splatfix.report.tree import (
    Badge,
    Block,
    Code,
    Items,
    Link,
    Numbered,
    Paragraph,
    Section,
    Strong,
    Table,
    Text,
    inlines,
)

# An appendix of an article: no chapter, and nothing deeper than a journal's style numbers.
_HEADINGS = ("section", "subsection", "subsubsection")


def render(document: Section) -> str:
    """The document as an appendix: its title is a section, what is below it are subsections."""
    return "\n".join([r"\appendix", *_section(document, 0)])


def _section(section: Section, level: int) -> Iterator[str]:
    yield from (rf"\{_HEADINGS[level]}{{{escape(section.title)}}}", "")
    for block in section.blocks:
        if isinstance(block, Section):
            yield from _section(block, level + 1)
        else:
            yield from _block(block)
            yield ""


def _block(block: Block) -> Iterator[str]:
    """Pictures and screens have no place in an article's appendix: they stay in the report."""
    if isinstance(block, Paragraph):
        yield _inline(block.text)
    elif isinstance(block, Items):
        yield r"\begin{itemize}"
        for entry in block.entries:
            text = ", ".join(entry.entries) if isinstance(entry, Numbered) else entry
            yield rf"  \item {_inline(text)}"
        yield r"\end{itemize}"
    elif isinstance(block, Table):
        yield rf"\begin{{tabular}}{{{'l' * len(block.headers)}}}"
        yield " & ".join(map(escape, block.headers)) + r" \\"
        yield r"\hline"
        for row in block.rows:
            yield " & ".join(map(_inline, row)) + r" \\"
        yield r"\end{tabular}"
    elif isinstance(block, Code):
        yield rf"\begin{{flushleft}}\ttfamily {escape(block.line)}\end{{flushleft}}"


def _inline(text: Text) -> str:
    parts = []
    for piece in inlines(text):
        if isinstance(piece, Strong):
            parts.append(rf"\textbf{{{escape(piece.text)}}}")
        elif isinstance(piece, (Badge, Link)):
            parts.append(escape(piece.text))
        else:
            parts.append(escape(piece))
    return "".join(parts)


_SIGNS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # in braces none of them joins its neighbour, or is an argument of the command before
    **{sign: f"{{{sign}}}" for sign in "`'\"[]"},
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
}


def escape(text: str) -> str:
    """Text that LaTeX shows as it is; nothing in it is a command, whatever it holds."""
    signs = (_SIGNS.get(sign, sign) for sign in visible(text))
    return re.sub("-(?=-)", "-{}", "".join(signs))  # two hyphens would become a dash
