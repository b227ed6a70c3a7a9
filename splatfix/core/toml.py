"""Reads TOML on every Python that splatfix supports, and asks what somebody else wrote by the types it should have."""

from __future__ import annotations

import importlib
import sys
from typing import Any

# In the standard library since Python 3.11; before, the dependency tomli is the same code.
_MODULE: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the document as plain types.

    Raises:
        ValueError: with line and column when ``text`` is not TOML, or that it is nested too deeply.
    """
    try:
        document: dict[str, Any] = _MODULE.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return document
