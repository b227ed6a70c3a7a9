"""An audit that asked about nothing is no clean audit."""

import json

import pytest

from splatfix.core.runner import Completed
from tools.audit import judge

FINE = {"name": "rich", "version": "15.0.0", "vulns": []}
BAD = {"name": "jinja2", "version": "2.10", "vulns": [{"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"]}]}
SKIPPED = {
    "name": "torch",
    "skip_reason": "Dependency not found on PyPI and could not be audited: torch (2.13.0)",
}


@pytest.mark.parametrize(
    ("packages", "code"),
    [([FINE], 0), ([FINE, BAD], 1), ([FINE, SKIPPED], 0), ([BAD, SKIPPED], 1), ([SKIPPED], 3), ([], 3)],
)
def test_only_answers_count(packages: list[object], code: int) -> None:
    found, lines = judge(Completed((), 0, json.dumps({"dependencies": packages}), "", 0.0))
    assert found == code
    assert any("NOT AUDITED: torch" in line for line in lines) == (SKIPPED in packages)
    assert any("PYSEC-2019-217" in line for line in lines) == (BAD in packages)


@pytest.mark.parametrize("said", ["", "{}", "[]", "no JSON"])
def test_no_answer_is_undetermined(said: str) -> None:
    assert judge(Completed((), 1, said, "ConnectionError", 0.0))[0] == 3
