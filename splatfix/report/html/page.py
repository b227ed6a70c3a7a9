"""What all pages have around them. Each is one HTML file that needs no network and no library, readable on a phone, on paper and
by a screen reader."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

import splatfix
from splatfix.report.marks import Table
from splatfix.report.templates import fill_in

Part = Table | Sequence[tuple[str, str]]
"""A section of a plain page: a table, or names with their values."""


def page(template: str, **values: Any) -> str:
    """Return a template filled in as one HTML file, with style and script."""
    script = _own("viewer.js")
    return fill_in(
        template,
        version=splatfix.__version__,
        style=_own("style.css"),
        script=script,
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **values,
    )


@cache
def _own(name: str) -> Markup:
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))  # nosec B704 - a file of ours
