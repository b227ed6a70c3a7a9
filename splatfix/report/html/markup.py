"""HTML by construction: whatever is not :class:`Html` becomes text, so that nothing from outside is ever markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from splatfix.core.visible import visible

_VOID = {"input", "meta", "image", "use", "path", "line"}


class Html(str):
    """Markup that this package made."""

    __slots__ = ()


def text(value: object) -> Html:
    """Anything as text, for content and for attributes; signs that are not printable are spelled out."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(visible(str(value), keep="\n")))


def element(tag: str, *content: object, **attributes: object) -> Html:
    """``<tag attribute="...">content</tag>``; content that is no markup is escaped.

    Args:
        attributes: ``class_`` for class, ``aria_label`` for aria-label; True for one without a value, None or False for none.
    """
    given = [
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_quoted(value)}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    ]
    opening = f"<{tag}{''.join(given)}"
    return Html(f"{opening}/>" if tag in _VOID else f"{opening}>{join(content)}</{tag}>")


def join(parts: Iterable[object]) -> Html:
    """Parts one after the other."""
    return Html("".join(map(text, parts)))


def items(tag: str, entries: Iterable[object], **attributes: object) -> Html:
    """A list (``ul`` or ``ol``)."""
    return element(tag, *(element("li", entry) for entry in entries), **attributes)


def pairs(rows: Iterable[tuple[str, object]]) -> Html:
    """A list of names with their values; pairs without a value are left out."""
    cells = (join((element("dt", name), element("dd", value))) for name, value in rows if value != "")
    return element("dl", *cells)


def table(caption: str, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """A table whose first column names the row. Its roles are explicit: on a phone its cells stand below each other,
    which would take their meaning from them."""
    head = (element("th", name, scope="col", role="columnheader") for name in headers)
    body = (
        element(
            "tr",
            element("th", row[0], scope="row", role="rowheader"),
            *(
                element("td", cell, role="cell", data_label=name)
                for name, cell in zip(headers[1:], row[1:], strict=True)
            ),
            role="row",
        )
        for row in rows
    )
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head, role="row"), role="rowgroup"),
        element("tbody", *body, role="rowgroup"),
        role="table",
    )


def details(summary: object, *content: object, opened: bool = False, **attributes: object) -> Html:
    """Content that opens at a click or a key."""
    return element("details", element("summary", summary), *content, open=opened, **attributes)


def badge(kind: str, words: str) -> Html:
    """A result in words, with a sign and a colour.

    Args:
        kind: ``good``, ``bad``, ``unsure`` or ``none``.
    """
    sign = {"good": "✓", "bad": "✗", "unsure": "?", "none": "–"}[kind]
    return element("span", element("span", sign, aria_hidden="true"), f" {words}", class_=f"badge {kind}")


def _quoted(value: object) -> str:
    return html.escape(str(value)) if isinstance(value, Html) else text(value)
