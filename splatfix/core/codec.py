"""Frozen dataclasses to JSON and back without loss, driven by their type hints; and JSON that somebody else wrote."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from splatfix.core.words import counted

T = TypeVar("T")


class CodecError(ValueError):
    """A JSON document does not have the shape of the dataclass it should become; the message names the place."""


@dataclasses.dataclass(frozen=True)
class Spelled:
    """For ``Annotated[str, Spelled(...)]``: what such a text looks like, so that those who read it may rely on it."""

    pattern: str
    what: str
    """``an architecture such as sm_90``."""

    def fits(self, text: str) -> bool:
        """It is spelled so."""
        return re.fullmatch(self.pattern, text) is not None


def parse_json(text: str) -> Any:
    """A JSON document as plain types.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or has a number that no computer can hold.
    """
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


_MEMBER = re.compile(r'[ \t\r\n]*([,{])[ \t\r\n]*"((?:[^"\\\x00-\x1f]|\\.)*)"[ \t\r\n]*:[ \t\r\n]*')
_DECODER = json.JSONDecoder(parse_constant=_no_number)


def parse_start(text: str, end: str) -> dict[str, Any]:
    """The members of a JSON object before the one called ``end``, which is not looked at, nor what follows it: a document
    whose largest member is its last is read in a part of the time. Without such a member all of it is read.

    Raises:
        ValueError: it is no JSON object, is nested too deeply, or is cut off.
    """
    members: dict[str, Any] = {}
    position = 0
    while (member := _MEMBER.match(text, position)) and (member[1] == "{") is (position == 0):
        if member[2] == end:
            if not text.endswith(("}", "}\n")):
                raise ValueError("it is cut off")
            return members
        name = json.loads(f'"{member[2]}"') if "\\" in member[2] else member[2]
        try:
            members[name], position = _DECODER.raw_decode(text, member.end())
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
    document = parse_json(text)  # it has no such member, or is damaged: then this says where
    if not isinstance(document, dict):
        raise ValueError("it is no object")
    return document


def to_json(value: Any) -> Any:
    """Plain JSON types for a dataclass, enum, tuple, mapping or scalar.

    What has a form of its own (a step, an architecture) says it by ``to_json``, and reads it by the class method ``from_json``.
    """
    if hasattr(type(value), "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
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
    """The inverse of :func:`to_json` for the same type.

    Unknown keys are refused (they would be lost), missing keys take the field's default.

    Raises:
        CodecError: with the path of the first place that does not fit.
    """
    return cast(T, _decode(kind, document, "$"))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return data
    if origin in (typing.Union, types.UnionType):
        return _decode_union(kind, data, where)
    if origin is Annotated:
        plain, *rules = typing.get_args(kind)
        value = _decode(plain, data, where)
        for rule in rules:
            if isinstance(rule, Spelled) and not rule.fits(value):
                raise CodecError(f"{where}: {rule.what} expected, {_short(value)} found")
        return value
    if origin is tuple:
        items = typing.get_args(kind)
        _expect(data, list, where)
        if len(items) == 2 and items[1] is Ellipsis:
            items = (items[0],) * len(data)
        if len(data) != len(items):
            raise CodecError(f"{where}: {counted(len(items), 'item')} expected, {len(data)} found")
        return tuple(_decode(items[i], entry, f"{where}[{i}]") for i, entry in enumerate(data))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        _expect(data, dict, where)
        key_kind, value_kind = typing.get_args(kind)
        return {
            _decode(key_kind, key, where): _decode(value_kind, item, f"{where}.{_short(key)}")
            for key, item in data.items()
        }
    target = origin or kind
    if hasattr(target, "from_json"):
        try:
            return target.from_json(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CodecError(f"{where}: {_short(data)} is no {target.__name__}") from error
    if dataclasses.is_dataclass(target):
        return _decode_dataclass(kind, cast(type, target), data, where)
    if isinstance(target, type) and issubclass(target, Enum):
        try:
            return target(data)
        except ValueError as error:
            raise CodecError(f"{where}: {_short(data)} is no {target.__name__}") from error
    if target is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if target is None or target is type(None):
        if data is not None:
            raise CodecError(f"{where}: null expected, {type(data).__name__} found")
        return None
    _expect(data, target, where)
    return data


def _decode_union(kind: Any, data: Any, where: str) -> Any:
    failures = []
    for option in typing.get_args(kind):
        try:
            return _decode(option, data, where)
        except CodecError as error:
            failures.append(str(error))
    # the failure that reached deepest says most
    raise CodecError(max(failures, key=len))


def _decode_dataclass(kind: Any, target: type, data: Any, where: str) -> Any:
    _expect(data, dict, where)
    hints = dict(_hints(target))
    parameters = dict(zip(getattr(target, "__parameters__", ()), typing.get_args(kind), strict=False))
    fields = {field.name: field for field in dataclasses.fields(target)}
    unknown = sorted(set(data) - set(fields))
    if unknown:
        raise CodecError(f"{where}: unknown key {_short(unknown[0])} for {target.__name__}")
    values = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _decode(substitute(hints[name], parameters), data[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise CodecError(f"{where}: key {name!r} is missing for {target.__name__}")
    return target(**values)


def substitute(hint: Any, parameters: dict[Any, Any]) -> Any:
    """Put the type arguments of a generic dataclass into a field's hint (``T | None`` -> ``str | None``)."""
    if not parameters:
        return hint
    if hint in parameters:
        return parameters[hint]
    arguments = typing.get_args(hint)
    if not arguments:
        return hint
    replaced = tuple(substitute(argument, parameters) for argument in arguments)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.Union[replaced]
    return typing.get_origin(hint)[replaced]


def _expect(data: Any, kind: Any, where: str) -> None:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise CodecError(f"{where}: {getattr(kind, '__name__', kind)} expected, {type(data).__name__} found")


def _short(data: object) -> str:
    """The beginning of a value that somebody else wrote, in ASCII."""
    text = ascii(data)
    return text if len(text) < 60 else f"{text[:60]}..."
