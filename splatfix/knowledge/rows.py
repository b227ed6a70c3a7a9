"""Rows of the tables as frozen structs: one decoder, driven by type hints, for every table.

A row may hold more than its struct has: notes and marks that are there for people. What values may look like is for
``schema.json`` to say, so that here nothing is checked again.
"""

import re
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import fields

from splatfix.core.step import Step, step_of
from splatfix.knowledge.tables import pair, source_of, table, version

T = TypeVar("T")
_fields: Any = cache(fields)  # resolves the types of a struct once, and not for every row


def decode(kind: type[T], row: Mapping[str, Any], where: str, /, **given: Any) -> T:
    """A row as a struct, each field from what has its name; one that the row lacks takes its default.

    Args:
        where: table, section and key of the row, for errors.
        given: fields that are not in the row, or not as they should be.

    Raises:
        ValueError: with the place of the row that does not fit.
    """
    try:
        return typing.cast(T, _struct(kind, row, given))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{where}: {error}") from error


def _struct(kind: Any, row: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    values = {
        item.name: _value(item.type, row[item.name])
        for item in _fields(kind)
        if item.name in row and item.name not in given
    }
    return kind(**values, **given)


def _value(hint: Any, data: Any) -> Any:
    """What a value of TOML stands for, where that type is expected."""
    kind, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (types.UnionType, typing.Union):  # X | None; TOML has no null
        return None if data in (None, False) else _value(arguments[0], data)
    if hint == tuple[int, int]:
        return pair(data)
    if hint == tuple[int, ...]:
        return version(data)
    if kind is re.Pattern:
        return re.compile(data)
    if kind is Step:
        return step_of(data)
    if kind in (tuple, frozenset):
        return kind(_value(arguments[0], item) for item in data)
    if kind is Mapping:
        key, value = arguments
        # TOML has no keys but texts
        return {key(name) if key is int else name: _value(value, item) for name, item in data.items()}
    if not isinstance(kind, type):
        return data
    if hasattr(kind, "parse"):  # an architecture
        return kind.parse(data)
    if issubclass(kind, Struct):
        return _struct(kind, data, {})
    if issubclass(kind, Enum) or kind is float:
        return kind(data)
    return data


def rows(kind: type[T], name: str, section: str, key: str = "") -> dict[str, T]:
    """The rows of a section of a table, by their keys.

    Args:
        key: the field that takes the row's key, where one does.
    """
    decoded = {}
    for row_key, row in table(name)[section].items():
        given = {key: row_key} if key else {}
        # a word of the table's own list of sources, or a source in words
        if "source" in kind.__annotations__:
            given["source"] = source_of(name, row)
        decoded[row_key] = decode(kind, row, f"{name}.{section}.{row_key}", **given)
    return decoded
