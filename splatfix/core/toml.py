"""Reads TOML on every Python that splatfix supports, and asks what somebody else wrote by the types it should have."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

# In the standard library since Python 3.11; before, the dependency tomli is the same code.
_MODULE: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

# The parser takes its time for these: minutes for one key of many parts.
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){50}""")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the document as plain types; a ``ValueError`` with line and column for what is no TOML, or nested too deeply."""
    if _LONG_KEY.search(text):
        raise ValueError("it has a key of more than fifty parts")
    try:
        document: dict[str, Any] = _MODULE.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return document
