"""TOML that somebody else wrote, asked by the types that it should have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        """Return a table inside; empty when it is not there."""
        return TomlTable(self._get(key, dict) or {}, self._file, self.wrong, f"{self._path}{key}.")

    def text(self, key: str) -> str | None:
        """Return a string; None when it is not there."""
        value: str | None = self._get(key, str)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the strings of an array; empty when it is not there."""
        values = self._get(key, list) or ()
        texts = tuple(value for value in values if isinstance(value, str))
        if len(texts) < len(values):
            other = next(value for value in values if not isinstance(value, str))
            self._tell(f"an item of {self._path}{key}", other, str)
        return texts

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
