"""Rows of the tables as frozen structs: one decoder, driven by type hints, for every table.

A row may hold more than its struct has: notes and marks that are there for people. What values may look like is for
``schema.json`` to say, so that here nothing is checked again.
"""

import re
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import fields

from splatfix.core.step import Step, step_of
from splatfix.knowledge.tables import pair, source_of, table, version

T = TypeVar("T")


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
    readers = _readers(kind)
    values = {name: read(row[name]) for name, read in readers if name in row and name not in given}
    return kind(**values, **given)


@cache
def _readers(kind: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    return tuple((item.name, _reader(item.type)) for item in fields(kind))


def _as_it_stands(data: Any) -> Any:
    return data


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return what makes of a value of TOML what it stands for, where that type is expected."""
    kind, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (types.UnionType, typing.Union):  # X | None; TOML has no null
        of_value = _reader(arguments[0])
        return lambda data: None if data in (None, False) else of_value(data)
    if hint in (tuple[int, int], tuple[int, ...]):
        return pair if hint == tuple[int, int] else version
    if kind is re.Pattern:
        return re.compile
    if kind is Step:
        return step_of
    if kind in (tuple, frozenset):
        of_item = _reader(arguments[0])
        return lambda data: kind(map(of_item, data))
    if kind is Mapping:
        of_key, of_item = arguments[0] if arguments[0] is int else _as_it_stands, _reader(arguments[1])
        # TOML has no keys but texts
        return lambda data: {of_key(name): of_item(item) for name, item in data.items()}
    if not isinstance(kind, type):
        return _as_it_stands
    if hasattr(kind, "parse"):  # an architecture
        parse: Callable[[Any], Any] = kind.parse
        return parse
    if issubclass(kind, Struct):
        return lambda data: _struct(kind, data, {})
    return kind if issubclass(kind, Enum) or kind is float else _as_it_stands


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
