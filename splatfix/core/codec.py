"""Structs to JSON and back without loss, by msgspec; and JSON that somebody else wrote."""

import dataclasses
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct, convert, to_builtins
from msgspec.structs import fields

T = TypeVar("T")
S = TypeVar("S", bound=Struct)


def parse_json(text: str) -> Any:
    """Return a JSON document as plain types; a ``ValueError`` for what is none, or is nested too deeply.

    The standard library reads it: msgspec takes no lone surrogates, which stand for bytes of odd file names.
    """
    try:
        return json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_whole)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no JSON")
    return number


def _whole(text: str) -> float:
    if len(text) > 20:  # longer than any count of bytes, and maybe larger than any float
        return _number(text)
    return int(text)


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object that a text is; empty for any other text."""
    try:
        document = parse_json(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def to_json(value: Any) -> Any:
    """Return the plain JSON types for a struct, enum, tuple, mapping or scalar. What has a form of its own (a step, an
    architecture) says it by ``to_json``, and reads it by the class method ``from_json``."""
    if hasattr(type(value), "to_json"):
        return value.to_json()
    if isinstance(value, Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        return {encoded: to_json(getattr(value, name)) for name, encoded in names}
    if dataclasses.is_dataclass(value):  # of which msgspec leaves out what has its default
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return to_builtins(value)  # an enum's value; a TypeError for what has no JSON form


def from_json(kind: type[T], document: Any) -> T:
    """Return what :func:`to_json` was given; missing keys take the field's default.

    Its ``ValueError`` (msgspec's ValidationError) has the path of the first place that does not fit.
    """
    return convert(document, kind, dec_hook=_of_its_own_form, str_keys=True)


def _of_its_own_form(kind: Any, document: Any) -> Any:
    try:
        return kind.from_json(document)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        # the beginning of what somebody else wrote, in ASCII
        raise ValueError(f"{ascii(document)[:60]} is no {kind.__name__}") from error


def fitting(kind: type[S], document: Any, **defaults: object) -> S:
    """Return the struct of what a stranger or a broken program wrote, as far as that fits: one bad value spoils no other.

    A field whose value is missing, or of another type, takes its default, which ``defaults`` has where the struct has none.
    """
    for field in fields(kind):
        with suppress(LookupError, TypeError, ValueError):
            defaults[field.name] = convert(document[field.encode_name], field.type)
    return kind(**defaults)
