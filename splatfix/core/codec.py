"""Frozen dataclasses to JSON and back without loss, driven by their type hints; and JSON that somebody else wrote."""

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from enum import Enum
from functools import partial
from typing import Annotated, Any, TypeVar, cast

from splatfix.core.data import dataclass
from splatfix.core.words import counted

T = TypeVar("T")


class CodecError(ValueError):
    """A JSON document does not have the shape of the dataclass it should become; the message names the place."""


@dataclass(frozen=True)
class Spelled:
    """For ``Annotated[str, Spelled(...)]``: what such a text looks like, so that those who read it may rely on it."""

    pattern: str
    what: str
    """``an architecture such as sm_90``."""

    def fits(self, text: str) -> bool:
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
        name = json.loads(f'"{member[2]}"')
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
    return cast(T, _STRICT.decode(kind, document))


_Convert = Callable[[Any, str], Any]
"""Makes a value of plain data; the second argument is its path in the document, for errors."""


class Decoder:
    """Makes values of plain JSON types, as type hints say: exactly as :func:`to_json` wrote them.

    A subclass reads what others wrote: it overrides how one kind of value is made, and everything else stays.
    """

    def __init__(self, *, other_keys: bool = False) -> None:
        """``other_keys``: keys that a dataclass lacks are passed over; else they are refused, because they would be lost."""
        self._other_keys = other_keys
        self._converters: dict[Any, _Convert] = {}
        self._fields: dict[Any, list[tuple[dataclasses.Field[Any], str, Any]]] = {}

    def decode(self, hint: Any, data: Any, where: str = "$") -> Any:
        """The value of this type in ``data``.

        Raises:
            CodecError: with the path of the first place that does not fit.
        """
        convert = self._converters.get(hint)
        if convert is None:  # hints are taken apart once: certificates are decoded by the thousand
            convert = self._converters[hint] = self.converter(hint)
        return convert(data, where)

    def converter(self, hint: Any) -> _Convert:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        target = origin or hint
        if hint is Any:
            return lambda data, where: data
        if origin in (typing.Union, types.UnionType):
            return partial(self.union, arguments)
        if origin is Annotated:
            return partial(self._annotated, arguments[0], arguments[1:])
        if origin is tuple and arguments[-1] is not Ellipsis:
            return partial(self._fixed, arguments)
        if origin in (tuple, frozenset):
            return lambda data, where: origin(self.items(arguments[0], data, where))
        if origin is Mapping:
            return partial(self.mapping, *arguments)
        if hasattr(target, "from_json"):
            return made_by(target.from_json, target.__name__)
        if dataclasses.is_dataclass(target):
            return partial(self.dataclass, hint)
        if issubclass(target, Enum):
            return made_by(target, target.__name__)
        return partial(_plain, target)

    def union(self, options: tuple[Any, ...], data: Any, where: str) -> Any:
        failures = []
        for option in options:
            try:
                return self.decode(option, data, where)
            except CodecError as error:
                failures.append(str(error))
        # the failure that reached deepest says most
        raise CodecError(max(failures, key=len))

    def items(self, hint: Any, data: Any, where: str) -> Iterable[Any]:
        if not isinstance(data, tuple):  # as in what never was a text
            _expect(data, list, where)
        return [self.decode(hint, item, f"{where}[{i}]") for i, item in enumerate(data)]

    def mapping(self, key: Any, value: Any, data: Any, where: str) -> Mapping[Any, Any]:
        _expect(data, dict, where)
        read_key: _Convert = partial(self.decode, key)
        if key is int:  # JSON has no keys but texts
            read_key = made_by(int, "number")
        return {
            read_key(name, where): self.decode(value, item, f"{where}.{_short(name)}")
            for name, item in data.items()
        }

    def dataclass(self, hint: Any, data: Any, where: str, given: Mapping[str, Any] | None = None) -> Any:
        """A dataclass of an object.

        Args:
            given: fields that are not in ``data``, or not as they should be.
        """
        target = typing.get_origin(hint) or hint
        _expect(data, dict, where)
        fields = self._fields_of(hint, target)
        if not self._other_keys:
            unknown = sorted(set(data) - {key for _, key, _ in fields})
            if unknown:
                raise CodecError(f"{where}: unknown key {_short(unknown[0])} for {target.__name__}")
        values = dict(given or {})
        for item, key, kind in fields:
            if item.name in values:
                continue
            value = self.field(item, kind, data.get(key, MISSING), f"{where}.{key}")
            if value is not MISSING:
                values[item.name] = value
        return target(**values)

    def field(self, item: dataclasses.Field[Any], hint: Any, data: Any, where: str) -> Any:
        """A field's value; MISSING, as ``data`` is where the object lacks it, for its default."""
        if data is not MISSING:
            return self.decode(hint, data, where)
        if is_required(item):
            parent, _, key = where.rpartition(".")
            raise CodecError(f"{parent}: key {key!r} is missing")
        return MISSING

    def _fields_of(self, hint: Any, target: type) -> list[tuple[dataclasses.Field[Any], str, Any]]:
        """Each field with its key in an object (``metadata={"key": ...}`` where that is not its name) and its type."""
        if hint not in self._fields:
            hints = typing.get_type_hints(target, include_extras=True)
            parameters = dict(zip(getattr(target, "__parameters__", ()), typing.get_args(hint), strict=False))
            self._fields[hint] = [
                (item, item.metadata.get("key", item.name), substitute(hints[item.name], parameters))
                for item in dataclasses.fields(target)
            ]
        return self._fields[hint]

    def _fixed(self, hints: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
        _expect(data, list, where)
        if len(data) != len(hints):
            raise CodecError(f"{where}: {counted(len(hints), 'item')} expected, {len(data)} found")
        return tuple(self.decode(hints[i], item, f"{where}[{i}]") for i, item in enumerate(data))

    def _annotated(self, hint: Any, rules: tuple[Any, ...], data: Any, where: str) -> Any:
        value = self.decode(hint, data, where)
        for rule in rules:
            if isinstance(rule, Spelled) and not rule.fits(value):
                raise CodecError(f"{where}: {rule.what} expected, {_short(value)} found")
        return value


_STRICT = Decoder()


def is_required(item: dataclasses.Field[Any]) -> bool:
    """The field has no default."""
    return item.default is MISSING and item.default_factory is MISSING


def made_by(make: Callable[[Any], Any], name: str) -> _Convert:
    """A converter of a function that raises an error of its own for what it cannot take.

    Args:
        name: of what it makes.
    """

    def convert(data: Any, where: str) -> Any:
        try:
            return make(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CodecError(f"{where}: {_short(data)} is no {name}") from error

    return convert


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


def _plain(kind: type, data: Any, where: str) -> Any:
    if kind is float and type(data) is int:
        return float(data)
    _expect(data, kind, where)
    return data


def _expect(data: Any, kind: type, where: str) -> None:
    # a truth value is an int to isinstance
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        name = "null" if kind is types.NoneType else kind.__name__
        raise CodecError(f"{where}: {name} expected, {type(data).__name__} found")


def _short(data: object) -> str:
    """The beginning of a value that somebody else wrote, in ASCII."""
    text = ascii(data)
    return text if len(text) < 60 else f"{text[:60]}..."
