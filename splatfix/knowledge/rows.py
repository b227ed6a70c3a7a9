"""Rows of the tables as frozen dataclasses: one decoder, driven by type hints, for every table.

A row may hold more than its dataclass has: notes and marks that are there for people. What values may look like is for
``schema.json`` to say, so that here nothing is checked again.
"""

import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from splatfix.core.codec import Decoder, made_by
from splatfix.core.step import Step, step_of
from splatfix.knowledge.tables import pair, source_of, table, version

T = TypeVar("T")


class _RowDecoder(Decoder):
    def converter(self, hint: Any) -> Callable[[Any, str], Any]:
        if hint == tuple[int, int]:
            return made_by(pair, "version of two numbers")
        if hint == tuple[int, ...]:
            return made_by(version, "version")
        if typing.get_origin(hint) is re.Pattern:
            return made_by(re.compile, "regular expression")
        if hint is Step:
            return made_by(step_of, "step")
        # an architecture is written exactly here; its from_json takes names of products too, which it looks up in a table
        if hasattr(hint, "parse"):
            return made_by(hint.parse, hint.__name__)
        return super().converter(hint)

    def union(self, options: tuple[Any, ...], data: Any, where: str) -> Any:
        if data is False:  # TOML has no null
            data = None
        return super().union(options, data, where)


_ROWS = _RowDecoder(other_keys=True)


def decode(kind: type[T], row: Mapping[str, Any], where: str, /, **given: Any) -> T:
    """A row as a dataclass, each field from what has its name; one that the row lacks takes its default.

    Args:
        where: table, section and key of the row, for errors.
        given: fields that are not in the row, or not as they should be.

    Raises:
        CodecError: with the path of the first value that does not fit.
    """
    return typing.cast(T, _ROWS.dataclass(kind, row, where, given))


def rows(kind: type[T], name: str, section: str, key: str = "") -> dict[str, T]:
    """The rows of a section of a table, by their keys.

    Args:
        key: the field that takes the row's key, where one does.
    """
    decoded = {}
    has_source = "source" in kind.__annotations__
    for row_key, row in table(name)[section].items():
        given = {}
        if key:
            given[key] = row_key
        # a word of the table's own list of sources, or a source in words
        if has_source:
            given["source"] = source_of(name, row)
        decoded[row_key] = decode(kind, row, f"{name}.{section}.{row_key}", **given)
    return decoded
