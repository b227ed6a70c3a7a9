"""Structs go to JSON and back without loss; anything else is refused with its place."""

import json
from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

import pytest
from msgspec import Struct, ValidationError, field

from splatfix.core.codec import from_json, parse_json, to_json

T = TypeVar("T")


class Color(str, Enum):
    RED = "red"


class Own:
    """With a form of its own."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.number == other.number

    def to_json(self) -> str:
        return f"no. {self.number}"

    @classmethod
    def from_json(cls, text: str) -> "Own":
        return cls(int(text.removeprefix("no. ")))


class Inner(Struct, frozen=True):
    name: str
    pair: tuple[int, int] | None = None


class Box(Struct, Generic[T], frozen=True):
    value: T | None = None
    why: str = ""


class Outer(Struct, frozen=True, forbid_unknown_fields=True):
    color: Color
    boxes: Box[tuple[Inner, ...]]
    numbers: Mapping[int, float] = field(default_factory=dict)
    own: tuple[Own, ...] = ()


@pytest.mark.parametrize(
    "value",
    [
        Outer(
            Color.RED, Box((Inner("a", (1, -2)), Inner("\udcff")), "\u2028"), {10**14: 1.5}, (Own(1), Own(2))
        ),
        Outer(Color.RED, Box(None)),
    ],
)
def test_round_trip(value: Outer) -> None:
    assert from_json(Outer, parse_json(json.dumps(to_json(value)))) == value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"color": "blue"}, "$.color"),
        ({"boxes": {"value": [{"name": 3}]}}, "$.boxes.value[0].name"),
        ({"new": 1}, "unknown field `new`"),
        ({"own": ["no. x"]}, "'no. x' is no Own - at `$.own[0]`"),
        ({"own": [3]}, "3 is no Own"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], message: str) -> None:
    document = {"color": "red", "boxes": {"value": None, "why": ""}, **change}
    with pytest.raises(ValidationError) as caught:
        from_json(Outer, document)
    assert message in str(caught.value)


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError):
        to_json(object())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ' + "[" * 100_000, "nested too deeply"),
        ('{"a": NaN}', "NaN is no JSON"),
        ("1e999", "1e999 is no JSON"),
        ("9" * 5_000, "too large a number"),
        ("", "value"),
    ],
)
def test_what_is_no_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)
