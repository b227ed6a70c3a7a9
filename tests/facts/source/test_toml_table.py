"""TOML of strangers: what has another type than asked for is named and left out."""

import pytest

from splatfix.core.toml import parse_toml
from splatfix.facts.source.toml_table import TomlTable
from tests.tables import data

TABLE = data(__file__)


@pytest.mark.parametrize(("text", "wrong"), TABLE["wrong-types-are-named"])
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
