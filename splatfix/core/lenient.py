"""Structs of JSON that a stranger or a broken program wrote: as far as it fits, and what does not is as if not there."""

import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from msgspec import NODEFAULT, Struct, convert
from msgspec.structs import FieldInfo

from splatfix.core.codec import UNIONS, fields_of, parse_json
from splatfix.core.limits import MOST_JSON
from splatfix.core.reading import read_text

T = TypeVar("T")

LARGEST = 1e60
"""No measurement is larger: float32 ends at 3.4e38, and what is beyond cannot be drawn."""


def json_object(text: str) -> dict[str, Any]:
    """The JSON object that a text is; empty for any other text."""
    try:
        document = parse_json(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def object_in(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds; empty where it cannot be read, holds another text, or more than is read of one."""
    text = read_text(path, MOST_JSON)
    if not isinstance(text, str):
        return {}
    return json_object(text)


def decode(kind: type[T], document: object) -> T:
    """A struct from a JSON object as far as that fits: other keys are passed over, and a field whose value is missing, or
    of another type, takes its default, or is empty. (``from_json`` refuses the latter, as it should for documents that
    splatfix writes.)

    Raises:
        ValueError: the class has a field with a fixed set of values (an enum), and the document has none of them.
    """
    document = document if isinstance(document, Mapping) else {}
    try:
        return convert(document, kind)  # nearly all fit, and this is fifty times as fast
    except ValueError:
        return cast(T, _struct(kind, document))


def _struct(kind: Any, document: Any) -> Any:
    _expect(document, Mapping)
    values = {}
    for item in fields_of(kind):
        try:
            values[item.name] = _value(item.type, document[item.encode_name])
        except (KeyError, ValueError):
            if item.default is NODEFAULT and item.default_factory is NODEFAULT:
                values[item.name] = _empty(item)
    return kind(**values)


def _empty(item: FieldInfo) -> Any:
    kind: Any = typing.get_origin(item.type) or item.type
    if kind in UNIONS:
        return None
    if issubclass(kind, Struct):
        return decode(kind, {})
    if issubclass(kind, Enum):
        raise ValueError(f"{item.name} is none of {', '.join(str(member.value) for member in kind)}")
    return {} if kind is Mapping else kind()


def _value(hint: Any, data: Any) -> Any:
    """The value of this type.

    Raises:
        ValueError: it is of another type.
    """
    kind, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is Any:
        return data
    if kind is Annotated:
        return _value(arguments[0], data)
    if kind in UNIONS:
        # so that one bad number of a list spoils no other
        return next((made for option in arguments for made in _fitting(option, data)), None)
    if kind in (int, float):
        is_number = isinstance(data, (int, float)) and not isinstance(data, bool)
        if is_number and abs(data) < LARGEST and kind(data) == data:
            return kind(data)
        raise ValueError(f"{data!r} is no {kind.__name__}")
    if kind is tuple:
        _expect(data, (list, tuple))
        if arguments[-1] is not Ellipsis:
            return tuple(_value(option, item) for option, item in zip(arguments, data, strict=True))
        # an object that does not fit is one less; a number less would make another row of numbers
        if issubclass(typing.get_origin(arguments[0]) or arguments[0], Struct):
            return tuple(made for item in data for made in _fitting(arguments[0], item))
        return tuple(_value(arguments[0], item) for item in data)
    if kind is Mapping:
        _expect(data, Mapping)
        return {str(name): made for name, item in data.items() for made in _fitting(arguments[1], item)}
    if issubclass(kind, Struct):
        return _struct(kind, data)
    if issubclass(kind, Enum):
        return kind(data)
    return _expect(data, kind)


def _fitting(hint: Any, data: Any) -> list[Any]:
    try:
        return [_value(hint, data)]
    except ValueError:
        return []


def _expect(data: Any, kind: Any) -> Any:
    if isinstance(data, kind):
        return data
    raise ValueError(f"{type(data).__name__} found")
