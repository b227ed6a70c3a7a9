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


def decode(kind: type[T], row: Mapping[str, Any], where: str, /, **given: Any) -> T:
    """A row as a struct, each field from what has its name in data files; one that the row lacks takes its default.

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
        return lambda data: _struct(kind, data, {})
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else lambda data: data


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
