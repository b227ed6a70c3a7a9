"""What every page has around its content: a policy that forbids all but its own script, and the styles."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import splatfix
from splatfix.report.html.markup import Html, element, items


def whole_page(title: str, header: Html, sections: Sequence[tuple[str, str, Html]], remark: str) -> str:
    """A whole HTML file that needs nothing else.

    Args:
        header: above the sections.
        sections: key, name and content of each; those without content are left out.
        remark: a sentence for the last line.
    """
    body = []
    for key, name, content in sections:
        if content:
            body.append(element("section", element("h2", name), content, id=key))
    footer = element("footer", f"splatfix {splatfix.__version__}. {remark}")
    return "<!DOCTYPE html>\n" + element(
        "html",
        element("head", *_head(title)),
        element("body", header, element("main", *body), footer, element("script", _own("viewer.js"))),
        lang="en",
    )


def contents(sections: Sequence[tuple[str, str, Html]]) -> Html:
    """Links to the sections that have content."""
    links = (element("a", name, href=f"#{key}") for key, name, content in sections if content)
    return element("nav", items("ul", links), aria_label="Sections")


def _head(title: str) -> list[Html]:
    # The digest allows our script and no other: a certificate may come from a stranger.
    script = base64.b64encode(hashlib.sha256(_own("viewer.js").encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{script}'; base-uri 'none'; form-action 'none'"
    )
    return [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", _own("style.css")),
    ]


@cache
def _own(name: str) -> Html:
    return Html(Path(__file__).with_name(name).read_text(encoding="utf-8"))
