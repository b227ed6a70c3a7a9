"""Facts of strangers: one decoder names the place of what is wrong, and what it lets through breaks no check."""

import json
from pathlib import Path
from typing import Any

import pytest

from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, SplatfixError
from splatfix.facts import load
from tests.machines import facts_of
from tests.tables import data


def document() -> dict[str, Any]:
    made: dict[str, Any] = to_json(facts_of("h200"))
    return made


def put(made: dict[str, Any], place: str, value: object) -> None:
    *way, last = [int(word) if word.isdecimal() else word for word in place.split(".")]
    here: Any = made
    for word in way:
        here = here[word]
    here[last] = value


def refused(path: Path) -> SplatfixError:
    with pytest.raises(SplatfixError) as caught:
        load(path)
    assert caught.value.exit_code is Exit.USAGE and len(str(caught.value)) < 500
    return caught.value


@pytest.mark.parametrize(("place", "value"), data(__file__)["places"])
def test_the_place_of_a_wrong_value(place: str, value: object, tmp_path: Path) -> None:
    made = document()
    put(made, place, value)
    (tmp_path / "f.json").write_text(json.dumps(made))
    error = refused(tmp_path / "f.json")
    named = "".join(f"[{word}]" if word.isdecimal() else f".{word}" for word in place.split("."))
    assert error.code == "not-facts" and f"${named}" in str(error)


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1e999}', "[" * 100_000, "{", "\0"])
def test_what_is_no_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(text)
    assert refused(tmp_path / "f.json").code == "not-json"
    assert refused(tmp_path).code == "cannot-read"


def test_facts_of_other_splatfixes(tmp_path: Path) -> None:
    earlier = {"schema_version": 2, "checkout": {"value": {"sources": [{"modules": [{"name": "a"}]}]}}}
    (tmp_path / "f.json").write_text(json.dumps(document() | earlier))
    assert load(tmp_path / "f.json") == facts_of("h200")
    (tmp_path / "f.json").write_text('{"schema_version": 99}')
    with pytest.raises(SplatfixError) as caught:
        load(tmp_path / "f.json")
    assert caught.value.code == "facts-too-new"
