"""Rows of the tables as frozen structs: one decoder, driven by type hints, for every table.

A row may hold more than its struct has: notes and marks that are there for people. What values may look like is for
``schema.json`` to say, so that here nothing is checked again.
"""

import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import fields
from packaging.specifiers import SpecifierSet

from splatfix.core.step import Step, step_of
from splatfix.knowledge.tables import pair, source_of, table, version

T = TypeVar("T")


def decode(kind: Callable[..., T], row: Mapping[str, Any], /, **given: Any) -> T:
    """A row as a struct, each field from what has its name in data files; one that the row lacks takes its default.

    Args:
        given: fields that are not in the row, or not as they should be.
    """
    values = {
        field: read(row[name]) for field, name, read in _readers(kind) if name in row and field not in given
    }
    return kind(**values, **given)


@cache
def _readers(kind: Any) -> tuple[tuple[str, str, Callable[[Any], Any]], ...]:
    return tuple((item.name, item.encode_name, _reader(item.type)) for item in fields(kind))


_BY_KIND: dict[Any, Any] = {tuple[int, int]: pair, tuple[int, ...]: version, float: float}
_BY_KIND |= {SpecifierSet: SpecifierSet, Step: step_of}


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return what makes of a value of TOML what it stands for, where that type is expected."""
    kind, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint in _BY_KIND or kind in _BY_KIND:
        return typing.cast("Callable[[Any], Any]", _BY_KIND.get(hint) or _BY_KIND[kind])
    if kind in (types.UnionType, typing.Union):  # X | None; TOML has no null
        of_value = _reader(arguments[0])
        return lambda data: None if data in (None, False) else of_value(data)
    if kind in (tuple, frozenset):
        of_item = _reader(arguments[0])
        return lambda data: kind(map(of_item, data))
    if kind is Mapping:
        of_key, of_item = int if arguments[0] is int else str, _reader(arguments[1])
        # TOML has no keys but texts
        return lambda data: {of_key(name): of_item(item) for name, item in data.items()}
    if hasattr(kind, "parse"):  # an architecture
        return lambda data: kind.parse(data)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return lambda data: decode(kind, data)
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else lambda data: data


def rows(kind: type[T], name: str, section: str, key: str = "") -> dict[str, T]:
    """The rows of a section of a table, by their keys.

    Args:
        key: the field that takes the row's key, where one does.
    """
    return {row_key: _row(kind, name, row, row_key, key) for row_key, row in table(name)[section].items()}


def row_of(kind: type[T], name: str, section: str, row_key: str, key: str = "") -> T | None:
    """One of these rows; None where the table lacks it."""
    row = table(name)[section].get(row_key)
    if row is None:
        return None
    return _row(kind, name, row, row_key, key)


def _row(kind: type[T], name: str, row: Mapping[str, Any], row_key: str, key: str) -> T:
    given = {key: row_key} if key else {}
    # a word of the table's own list of sources, or a source in words
    if "source" in kind.__annotations__:
        given["source"] = source_of(name, row)
    return decode(kind, row, **given)
