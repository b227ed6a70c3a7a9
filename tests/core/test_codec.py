"""Dataclasses go to JSON and back without loss; anything else is refused with its place."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


outers = st.builds(
    Outer,
    color=st.just(Color.RED),
    boxes=st.builds(
        Box,
        value=st.none()
        | st.lists(
            st.builds(Inner, name=st.text(), pair=st.none() | st.tuples(st.integers(), st.integers())),
            max_size=3,
        ).map(tuple),
        why=st.text(),
    ),
    flag=st.builds(Box, value=st.none() | st.booleans()),
    numbers=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)),
    many=st.lists(st.text()).map(tuple),
)


# the health check measures how busy the machine is
SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(outers)
def test_round_trip(value: Outer) -> None:
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


_INNER = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text(max_size=4)
_MEMBERS = st.dictionaries(
    st.text(max_size=4),
    st.recursive(_INNER, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2), inner)),
    max_size=4,
)


@SETTINGS
@given(_MEMBERS, st.booleans(), st.sampled_from([None, 2]))
def test_the_start_of_a_document_is_what_json_reads(
    members: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    members.pop("end", None)
    text = json.dumps({**members, "end": {"end": [1]}}, ensure_ascii=ascii_only, indent=indent)
    assert parse_start(text, "end") == members
    assert parse_start(json.dumps(members, ensure_ascii=ascii_only, indent=indent), "end") == members


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
