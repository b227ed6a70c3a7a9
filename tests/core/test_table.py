"""TOML of strangers: what has another type than asked for is named and left out."""

import pytest

from splatfix.core.toml import TomlTable, parse_toml
from tests.tables import tabled


@tabled
def test_wrong_types_are_named(text: str, wrong: str) -> None:
    document = TomlTable(parse_toml(text), "x.toml")
    project = document.table("project")
    assert project.text("name") is None
    assert project.texts("dependencies") == (("y",) if "'y'" in text else ())
    assert document.wrong == [f"x.toml: {wrong}"]


def test_right_types() -> None:
    document = TomlTable(parse_toml("[project]\nname = 'x'\ndependencies = ['y']"), "x.toml")
    assert document.table("project").text("name") == "x"
    assert document.table("project").texts("dependencies") == ("y",)
    assert document.table("other").text("name") is None and document.wrong == []


@pytest.mark.parametrize("text", ["x = " + "[" * 50_000, "x = " + "{a = " * 50_000])
def test_deep_toml_is_no_toml(text: str) -> None:
    with pytest.raises(ValueError, match="deep"):
        parse_toml(text)
