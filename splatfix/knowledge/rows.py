"""Rows of the tables as frozen dataclasses: one decoder, driven by type hints, for every table.

A row may hold more than its dataclass has: notes and marks that are there for people. What values may look like is for
``schema.json`` to say, so that here nothing is checked again.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from splatfix.core.step import Command, Step
from splatfix.knowledge.tables import pair, source_of, table, version

T = TypeVar("T")
_Convert = Callable[[Any], Any]


def decode(kind: type[T], row: Mapping[str, Any], /, **given: Any) -> T:
    """A row as a dataclass, each field from what has its name; one that the row lacks takes its default.

    Args:
        given: fields that are not in the row, or not as they should be.
    """
    values = dict(given)
    for name, convert in _fields(kind).items():  # type: ignore[arg-type]
        if name in row and name not in given:
            values[name] = convert(row[name])
    return kind(**values)


def rows(kind: type[T], name: str, section: str, key: str = "") -> dict[str, T]:
    """The rows of a section of a table, by their keys.

    Args:
        key: the field that takes the row's key, where one does.
    """
    decoded = {}
    for row_key, row in table(name)[section].items():
        given = {}
        if key:
            given[key] = row_key
        # a word of the table's own list of sources, or a source in words
        if "source" in _fields(kind):  # type: ignore[arg-type]
            given["source"] = source_of(name, row)
        decoded[row_key] = decode(kind, row, **given)
    return decoded


@cache
def _fields(kind: Any) -> Mapping[str, _Convert]:
    hints = typing.get_type_hints(kind)
    return {field.name: _converter(hints[field.name]) for field in dataclasses.fields(kind)}


def _converter(hint: Any) -> _Convert:
    """What makes a value of this type of one in JSON or TOML."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        present = _converter(next(item for item in arguments if item is not types.NoneType))

        def optional(value: Any) -> Any:
            # TOML has no null: false stands for it
            if value is None or value is False:
                return None
            return present(value)

        return optional
    if hint == tuple[int, int]:
        return pair
    if hint == tuple[int, ...]:
        return version
    if origin is tuple and arguments[-1] is not Ellipsis:
        parts = [_converter(item) for item in arguments]
        return lambda value: tuple(part(item) for part, item in zip(parts, value, strict=True))
    if origin in (tuple, frozenset):
        each = _converter(arguments[0])
        return lambda value: origin(map(each, value))
    if origin is Mapping:
        of_key, of_value = map(_converter, arguments)
        return lambda value: {of_key(key): of_value(item) for key, item in value.items()}
    if origin is re.Pattern:
        return re.compile
    if hint is Step:
        return step_of
    if hasattr(hint, "parse"):
        return typing.cast(_Convert, hint.parse)
    if dataclasses.is_dataclass(hint):
        return lambda value: decode(typing.cast(type[Any], hint), value)
    if hint is Any or not isinstance(hint, type):  # such as a Literal
        return lambda value: value
    return hint


def step_of(
    row: Mapping[str, Any], groups: tuple[str, ...] = (), named: Mapping[str, str] | None = None
) -> Step:
    """A step from a data file: ``text``, and ``argv``, ``env`` or ``unset`` where there is a command.

    Args:
        groups: what stands for ``{0}``, ``{1}`` in its texts.
        named: what stands for ``{name}``.
    """
    named = named or {}
    text = row.get("text", "").format(*groups, **named)
    argv = tuple(word.format(*groups, **named) for word in row.get("argv", ()))
    env: dict[str, str | None] = {**row.get("env", {}), **dict.fromkeys(row.get("unset", ()))}
    if not argv and not env:
        return Step(text)
    return Step(text, Command(argv, tuple(env.items())))
