"""Reads TOML on every Python that splatfix supports."""

from __future__ import annotations

import importlib
import sys
from typing import Any

# In the standard library since Python 3.11; before, the dependency tomli is the same code.
_MODULE: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def parse_toml(text: str) -> dict[str, Any]:
    """The document as plain types.

    Raises:
        ValueError: with line and column when ``text`` is not TOML.
    """
    document: dict[str, Any] = _MODULE.loads(text)
    return document
