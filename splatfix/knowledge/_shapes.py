"""Kinds of values and shapes of rows: a small vocabulary in which the shape of a data file can be said and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Check = Callable[[Any], bool]


@dataclass(frozen=True)
class Kind:
    """One kind of value: what it is called in an error, and the test for it."""

    name: str
    holds: Check


def _is_version(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(part) is int and part >= 0 for part in value)


def _is_arch(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    major, dot, minor = value.rstrip("af").partition(".")
    return bool(dot) and major.isdigit() and minor.isdigit()


def _is_pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(value.strip()) and bool(re.compile(value))
    except re.error:
        return False


def _is_name_and_archs(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) and part for part in value)
    )


TEXT = Kind("a text", lambda value: isinstance(value, str) and bool(value.strip()))
ANY_TEXT = Kind("a text, maybe empty", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
INT = Kind("a whole number", lambda value: type(value) is int)
NUMBER = Kind("a number", lambda value: type(value) in (int, float))
VERSION = Kind("a version as a list of numbers, [12, 8]", _is_version)
PAIR = Kind("a version of two numbers, [12, 8]", lambda value: _is_version(value) and len(value) == 2)
DRIVER = Kind(
    "a driver version as text, '580.65.06'", lambda value: isinstance(value, str) and value[:1].isdigit()
)
ARCH = Kind("an architecture as text, '12.0'", _is_arch)
PATTERN = Kind("a regular expression", _is_pattern)
NAME_AND_ARCHS = Kind("a name and its architectures, ['Ada', '8.9+PTX']", _is_name_and_archs)

# What the keys of rows are: they are read as numbers, and one that is none would stop whoever asks the table.
ANY_KEY = Kind("a name", lambda key: bool(key.strip()))
NUMBER_KEY = Kind("a whole number such as '120'", lambda key: key.isascii() and key.isdigit())
HEX_KEY = Kind(
    "a hexadecimal number such as '0x10'", lambda key: re.fullmatch(r"(0x)?[0-9a-fA-F]+", key) is not None
)
VERSION_KEY = Kind("a version such as '12.8'", lambda key: re.fullmatch(r"\d+(\.\d+){0,3}", key) is not None)
RELEASE_KEY = Kind("a release such as '2.9'", lambda key: re.fullmatch(r"\d+\.\d+", key) is not None)


def maybe(kind: Kind) -> Kind:
    """The kind, or null (in TOML: false)."""
    return Kind(f"{kind.name}, or null", lambda value: value is None or value is False or kind.holds(value))


def each(kind: Kind) -> Kind:
    """A list of that kind."""
    return Kind(
        f"a list, each {kind.name}", lambda value: isinstance(value, list) and all(map(kind.holds, value))
    )


def by_name(kind: Kind) -> Kind:
    """A table whose values are of that kind."""
    return Kind(
        f"a table, each value {kind.name}",
        lambda value: isinstance(value, dict) and all(map(kind.holds, value.values())),
    )


def one_of(*texts: str) -> Kind:
    """One of these texts."""
    return Kind(f"one of {', '.join(texts)}", lambda value: value in texts)


def shape(**fields: Kind) -> Kind:
    """A table with exactly these fields."""
    return Kind(
        f"a table of {', '.join(fields)}",
        lambda value: (
            isinstance(value, dict)
            and set(value) == set(fields)
            and all(kind.holds(value[key]) for key, kind in fields.items())
        ),
    )


@dataclass(frozen=True)
class Rows:
    """A section: rows by key, or (``single``) one row. Each has the fields required, maybe the optional ones, no others."""

    required: Mapping[str, Kind]
    optional: Mapping[str, Kind]
    single: bool = False
    key: Kind = ANY_KEY


_ALWAYS = {"source": TEXT}
_OFTEN = {"note": ANY_TEXT, "date": TEXT, "verified": FLAG}


def rows(
    single: bool = False, optional: Mapping[str, Kind] | None = None, keys: Kind = ANY_KEY, **required: Kind
) -> Rows:
    """A section whose rows have these fields besides ``source`` (and perhaps ``note``, ``date``, ``verified``)."""
    return Rows(_ALWAYS | required, {**_OFTEN, **(optional or {})}, single, keys)


def row_problems(where: str, row: Any, wanted: Rows) -> Iterator[str]:
    """Every way in which a row departs from its shape, each as a sentence."""
    if not isinstance(row, dict):
        yield f"{where} must be a table with {', '.join(wanted.required)}."
        return
    for field, kind in wanted.required.items():
        if field not in row:
            yield f"{where} lacks {field!r} ({kind.name})."
        elif not kind.holds(row[field]):
            yield f"{where}.{field} is {row[field]!r}; it must be {kind.name}."
    for field, value in row.items():
        if field in wanted.required:
            continue
        if field not in wanted.optional:
            known = ", ".join([*wanted.required, *wanted.optional])
            yield f"{where} has a field {field!r} that means nothing. Fields: {known}."
        elif not wanted.optional[field].holds(value):
            yield f"{where}.{field} is {value!r}; it must be {wanted.optional[field].name}."
