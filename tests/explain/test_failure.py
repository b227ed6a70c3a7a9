"""What failed, and where, is told of any log, whatever is known of its cause."""

from typing import Any

import pytest

from splatfix.explain import explain_text
from tests.tables import data


@pytest.mark.parametrize("row", data(__file__)["rows"], ids=lambda row: row["name"])
def test_a_log_is_taken_apart(row: dict[str, Any]) -> None:
    failure = explain_text(row["log"]).failure
    assert {name: getattr(failure, name) for name in row["failed"]} == row["failed"]
    assert failure.file.endswith(row.get("file", ""))
    assert failure.tags.issuperset(row.get("tags", ()))
