"""What is no JSON, or of another shape than asked for, is refused with its place."""

import pytest
from msgspec import Struct, ValidationError

from splatfix.core.codec import from_json, parse_json, to_json
from splatfix.knowledge import Arch


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    targets: tuple[Arch, ...] = ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "$.name"),
        ({"new": 1}, "unknown field `new`"),
        ({"targets": ["sm_90", "sm_x"]}, "'sm_x' is no Arch - at `$.targets[1]`"),
        ({"targets": [3]}, "3 is no Arch"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        from_json(Wanted, {"name": "x", **change})
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
        ("9" * 400, "9 is no JSON"),
        ("", "value"),
    ],
)
def test_what_is_no_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)
