"""HTML by construction: whatever is not :class:`Html` becomes text, so that nothing from outside is ever markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from splatfix.core.step import Step
from splatfix.core.visible import visible
from splatfix.report.tree import Badge, Link, Table

_VOID = {"input", "meta", "image", "use", "path", "line"}


class Html(str):
    """Markup that this package made."""

    __slots__ = ()


def text(value: object) -> Html:
    """Anything as content: badges and links of a tree as such, all else as text; signs that are not printable are spelled
    out."""
    if isinstance(value, Html):
        return value
    if isinstance(value, Badge):
        return badge(value)
    if isinstance(value, Link):
        return element("a", value.text, href=value.target)
    return Html(html.escape(visible(str(value), keep="\n")))


def element(tag: str, *content: object, **attributes: object) -> Html:
    """``<tag attribute="...">content</tag>``; content that is no markup is escaped.

    Args:
        attributes: ``class_`` for class, ``aria_label`` for aria-label; True for one without a value, None or False for none.
    """
    opening = f"<{tag}"
    for name, value in attributes.items():
        name = name.rstrip("_").replace("_", "-")
        if value is True:
            opening += f" {name}"
        elif value is not None and value is not False:
            opening += f' {name}="{_quoted(value)}"'
    if tag in _VOID:
        return Html(f"{opening}/>")
    return Html(f"{opening}>{join(*content)}</{tag}>")


def _quoted(value: object) -> str:
    # markup inside an attribute is text, and ends it if its quotes stand as they are
    return html.escape(str(value)) if isinstance(value, Html) else text(value)


def join(*parts: object) -> Html:
    """Parts one after the other."""
    return Html("".join(map(text, parts)))


NOTHING = Html("")


def items(tag: str, entries: Iterable[object], **attributes: object) -> Html:
    """A list (``ul`` or ``ol``)."""
    return element(tag, *(element("li", entry) for entry in entries), **attributes)


def note(*content: object) -> Html:
    """A paragraph in small print."""
    return element("p", *content, class_="note")


def pre(content: str) -> Html:
    """A command or a file as it is. It can be focused, because who has no mouse scrolls it with the keys."""
    return element("pre", content, tabindex=0)


def pairs(rows: Iterable[tuple[str, object]]) -> Html:
    """A list of names with their values; pairs without a value are left out."""
    cells = []
    for name, value in rows:
        if value != "":
            cells += [element("dt", name), element("dd", value)]
    return element("dl", *cells)


def table(caption: str, content: Table) -> Html:
    """A table whose first column names the row. Its roles are explicit: on a phone its cells stand below each other,
    which would take their meaning from them."""
    head = (element("th", name, scope="col", role="columnheader") for name in content.headers)
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head, role="row"), role="rowgroup"),
        element("tbody", *(_row(content.headers, row) for row in content.rows), role="rowgroup"),
        role="table",
    )


def _row(headers: Sequence[str], row: Sequence[object]) -> Html:
    cells = [element("th", row[0], scope="row", role="rowheader")]
    for name, cell in zip(headers[1:], row[1:], strict=True):
        cells.append(element("td", cell, role="cell", data_label=name))
    return element("tr", *cells, role="row")


def wide_table(label: str, caption: str, content: Table, class_: str = "wide") -> Html:
    """A table that scrolls by itself where it is wider than the page, also by the keys."""
    region = {"class_": class_, "tabindex": 0, "role": "region", "aria_label": label}
    return element("div", table(caption, content), **region)


def details(summary: object, *content: object, opened: bool = False, **attributes: object) -> Html:
    """Content that opens at a click or a key."""
    return element("details", element("summary", summary), *content, open=opened, **attributes)


def badge(content: Badge) -> Html:
    """A result in words, with a sign and a colour."""
    mark = content.mark
    sign = element("span", mark.sign, aria_hidden="true")
    return element("span", sign, f" {content.text}", class_=f"badge {mark.value}")


def step(content: Step) -> Html:
    """One thing to do, with its command."""
    command = pre(content.command.shell(windows=False)) if content.command else NOTHING
    return join(element("span", content.text), command)
