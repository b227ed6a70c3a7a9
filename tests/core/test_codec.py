"""Dataclasses go to JSON and back without loss; anything else is refused with its place."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

import pytest

from splatfix.core.codec import CodecError, from_json, parse_start, to_json

T = TypeVar("T")


class Color(str, Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    name: str
    pair: tuple[int, int] | None = None


@dataclass(frozen=True)
class Box(Generic[T]):
    value: T | None = None
    why: str = ""


@dataclass(frozen=True)
class Outer:
    color: Color
    boxes: Box[tuple[Inner, ...]]
    flag: Box[bool] = field(default_factory=Box)
    numbers: Mapping[str, float] = field(default_factory=dict)
    many: tuple[str, ...] = ()


def test_round_trip() -> None:
    boxes = Box((Inner("a", (1, -2)), Inner("")), "both")
    for value in (
        Outer(Color.RED, boxes, Box(True), {"x": 1.5}, ("\u2028", "")),
        Outer(Color.RED, Box(None)),
    ):
        assert from_json(Outer, json.loads(json.dumps(to_json(value)))) == value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"color": "blue"}, "$.color"),
        ({"boxes": {"value": [{"name": 3}]}}, "$.boxes.value[0].name"),
        ({"boxes": {"value": [{"name": "a", "pair": [1]}]}}, "2 items expected"),
        ({"new": 1}, "unknown key 'new'"),
        ({"many": "text"}, "$.many"),
        ({"flag": {"value": 1}}, "$.flag.value"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], message: str) -> None:
    document = {"color": "red", "boxes": {"value": None, "why": ""}, **change}
    with pytest.raises(CodecError) as caught:
        from_json(Outer, document)
    assert message in str(caught.value)


def test_a_missing_key_without_default_is_named() -> None:
    with pytest.raises(CodecError, match="'boxes' is missing"):
        from_json(Outer, {"color": "red"})


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError):
        to_json(object())


@pytest.mark.parametrize("indent", [None, 2])
def test_the_start_of_a_document_is_what_json_reads(indent: int | None) -> None:
    members = {"a": [1, {"end": 2}], "\u00e9": "}", "b": None}
    text = json.dumps({**members, "end": {"end": [1]}}, ensure_ascii=False, indent=indent)
    assert parse_start(text, "end") == members == parse_start(json.dumps(members, indent=indent), "end")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "end": [', "cut off"),
        ('{"a": 1', "delimiter"),
        ('{"a": ' + "[" * 100_000, "nested too deeply"),
        ('{"a": NaN, "end": 1}', "NaN is no JSON"),
        ("[1]", "no object"),
        ('{"a": 1 "end": 2}', "delimiter"),
        (',"a": 1, "end": 2}', "value"),
        ("", "value"),
    ],
)
def test_a_damaged_start_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_start(text, "end")
