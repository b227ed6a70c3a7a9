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


def test_wordings_can_ask_who_failed_in_which_step_of_what() -> None:
    log = (
        'File "/e/lib/python3.10/site-packages/spconv/ops.py", line 4, in call\nRuntimeError: CUDA error: x\n'
    )
    tags = explain_text(log).failure.tags
    assert {"by:cuda", "in:spconv", "step:run"} <= tags and "hidden" not in tags
