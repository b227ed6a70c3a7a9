"""Dataclasses of JSON that a stranger or a broken program wrote: as far as it fits, and what does not is as if not there."""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from splatfix.core.codec import CodecError, Decoder, is_required, made_by, parse_json
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
    """A dataclass from a JSON object as far as that fits: other keys are passed over, and a field whose value is missing, or
    of another type, takes its default, or is empty. (``from_json`` refuses both, as it should for documents that splatfix
    writes.)

    Raises:
        ValueError: the class has a field with a fixed set of values (an enum), and the document has none of them.
    """
    entries = dict(document) if isinstance(document, Mapping) else {}
    return cast(T, _LENIENT.decode(kind, entries))


class _LenientDecoder(Decoder):
    """What does not fit is as if it were not there."""

    def converter(self, hint: Any) -> Callable[[Any, str], Any]:
        if hint in (int, float):
            return made_by(partial(_number, hint), "number")
        return super().converter(hint)

    def union(self, options: tuple[Any, ...], data: Any, where: str) -> Any:
        try:
            return super().union(options, data, where)
        except CodecError:
            return None  # so that one bad number of a list spoils no other

    def items(self, hint: Any, data: Any, where: str) -> Iterable[Any]:
        # an object that does not fit is one less; a number less would make another row of numbers
        if not dataclasses.is_dataclass(hint):
            return super().items(hint, data, where)
        items = super().items(Any, data, where)
        return [made for item in items for made in self._fitting(hint, item, where)]

    def mapping(self, key: Any, value: Any, data: Any, where: str) -> Mapping[Any, Any]:
        fitting: dict[str, Any] = {}
        for name, item in super().mapping(Any, Any, data, where).items():
            for made in self._fitting(value, item, where):
                fitting[str(name)] = made
        return fitting

    def field(self, item: dataclasses.Field[Any], hint: Any, data: Any, where: str) -> Any:
        try:
            return super().field(item, hint, data, where)
        except CodecError:
            if not is_required(item):
                return dataclasses.MISSING
            kind = typing.get_origin(hint) or hint
            if kind is types.UnionType:
                return None
            if dataclasses.is_dataclass(kind):
                return self.decode(kind, {})
            if issubclass(kind, Enum):
                raise
            return {} if kind is Mapping else kind()

    def _fitting(self, hint: Any, data: Any, where: str) -> Iterator[Any]:
        try:
            yield self.decode(hint, data, where)
        except CodecError:
            return


_LENIENT = _LenientDecoder(other_keys=True)


def _number(kind: type[int] | type[float], value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and abs(value) < LARGEST and kind(value) == value:
        return kind(value)
    raise ValueError(f"{value!r} is no {kind.__name__}")
