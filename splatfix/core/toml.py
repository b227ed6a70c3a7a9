"""Reads TOML on every Python that splatfix supports, and asks what somebody else wrote by the types it should have."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping
from typing import Any

# In the standard library since Python 3.11; before, the dependency tomli is the same code.
_MODULE: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

# The parser takes its time for these: minutes for one key of many parts.
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){50}""")


def parse_toml(text: str) -> dict[str, Any]:
    """The document as plain types.

    Raises:
        ValueError: with line and column when ``text`` is not TOML, or that it is nested too deeply.
    """
    if _LONG_KEY.search(text):
        raise ValueError("it has a key of more than fifty parts")
    try:
        document: dict[str, Any] = _MODULE.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return document


_NAMES = {
    dict: "a table",
    list: "an array",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


class TomlTable:
    """A table whose entries may have any type. What has another type than asked for is as if it were not there, and is told
    in ``wrong``: ``pyproject.toml: project is a number, and must be a table``."""

    def __init__(
        self, values: Mapping[str, Any], file: str, wrong: list[str] | None = None, path: str = ""
    ) -> None:
        self.wrong: list[str] = [] if wrong is None else wrong
        self._values, self._file, self._path = values, file, path

    def table(self, key: str) -> TomlTable:
        """A table inside; empty when it is not there."""
        return TomlTable(self._get(key, dict) or {}, self._file, self.wrong, f"{self._path}{key}.")

    def text(self, key: str) -> str | None:
        """A string; None when it is not there."""
        value: str | None = self._get(key, str)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """The strings of an array; empty when it is not there."""
        return tuple(self.array(key, str))

    def tables(self, key: str) -> tuple[TomlTable, ...]:
        """The tables of an array; empty when it is not there."""
        rows = self.array(key, dict)
        return tuple(TomlTable(row, self._file, self.wrong, f"{self._path}{key}.") for row in rows)

    def array(self, key: str, kind: type = object) -> list[Any]:
        """The items of an array that have a type; empty when it is not there."""
        values = self._get(key, list) or ()
        for value in values:
            if not isinstance(value, kind):
                self._tell(f"an item of {self._path}{key}", value, kind)
                break
        return [value for value in values if isinstance(value, kind)]

    def _get(self, key: str, kind: type) -> Any:
        value = self._values.get(key)
        if value is None or isinstance(value, kind):
            return value
        self._tell(f"{self._path}{key}", value, kind)
        return None

    def _tell(self, subject: str, value: object, kind: type) -> None:
        self.wrong.append(
            f"{self._file}: {subject} is {_NAMES.get(type(value), 'a date')}, and must be {_NAMES[kind]}"
        )
