"""Structs to JSON and back without loss, by msgspec; and JSON that somebody else wrote."""

import json
import math
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, convert
from msgspec.structs import fields

T = TypeVar("T")

UNIONS = (types.UnionType, typing.Union)
fields_of: Any = cache(fields)
"""The fields of a struct with their types, resolved once."""

# msgspec has no bound for whole numbers: a text with so many digits in a row is left to the standard library
_ZEROS = bytes(b"0"[0] if byte in b"0123456789" else b" "[0] for byte in range(256))
_TOO_LONG = b"0" * 21


def parse_json(text: str) -> Any:
    """A JSON document as plain types.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or has a number that no computer can hold.
    """
    try:
        content = text.encode()
        if _TOO_LONG not in content.translate(_ZEROS):
            return msgspec.json.decode(content)
    except (ValueError, RecursionError):
        # the standard library takes the lone surrogates that stand for bytes of odd file names, and says where it fails
        pass
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_number, parse_int=_whole)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _number(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _whole(text: str) -> int:
    if len(text) > 20:  # longer than any count of bytes, and int() takes long over long ones
        raise ValueError(f"{text[:20]}... is too large a number")
    return int(text)


def to_json(value: Any) -> Any:
    """Plain JSON types for a struct, enum, tuple, mapping or scalar.

    What has a form of its own (a step, an architecture) says it by ``to_json``, and reads it by the class method ``from_json``.
    """
    if hasattr(type(value), "to_json"):
        return value.to_json()
    if isinstance(value, Struct):
        return {name: to_json(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def from_json(kind: type[T], document: Any) -> T:
    """The inverse of :func:`to_json` for the same type; missing keys take the field's default.

    Raises:
        ValidationError: a ``ValueError`` with the path of the first place that does not fit.
    """
    return convert(document, kind, dec_hook=_of_its_own_form, str_keys=True)


def _of_its_own_form(kind: Any, document: Any) -> Any:
    try:
        return kind.from_json(document)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        # the beginning of what somebody else wrote, in ASCII
        raise ValueError(f"{ascii(document)[:60]} is no {kind.__name__}") from error
