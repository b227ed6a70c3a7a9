"""TOML of strangers: what has another type than asked for is named and left out."""

import pytest

from splatfix.core.toml import parse_toml
from splatfix.facts.source.toml_table import TomlTable


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("project = 3", "project is a number, and must be a table"),
        ("project = []", "project is an array, and must be a table"),
        ("[project]\nname = true", "project.name is true or false, and must be a string"),
        ("[project]\nname = 1979-05-27", "project.name is a date, and must be a string"),
        ("[project]\ndependencies = 'x'", "project.dependencies is a string, and must be an array"),
        (
            "[project]\ndependencies = ['y', 3]",
            "an item of project.dependencies is a number, and must be a string",
        ),
    ],
)
def test_wrong_types_are_named(text: str, wrong: str) -> None:
    document = TomlTable(parse_toml(text), "x.toml")
    project = document.table("project")
    assert project.text("name") is None
    assert project.texts("dependencies") == (("y",) if "'y'" in text else ())
    assert document.wrong == [f"x.toml: {wrong}"]


@pytest.mark.parametrize("text", ["x = " + "[" * 50_000, "x = " + "{a = " * 50_000])
def test_deep_toml_is_no_toml(text: str) -> None:
    with pytest.raises(ValueError, match="deep"):
        parse_toml(text)
