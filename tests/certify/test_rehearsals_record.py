"""The record of rehearsed stacks says what their certificates said."""

import json
import re
from pathlib import Path

import pytest

from tools.rehearsals import RECORD, fork_of, row_of

ROWS = json.loads(RECORD.read_text(encoding="utf-8"))["rows"]
FORKS = json.loads(RECORD.read_text(encoding="utf-8"))["forks"]


@pytest.mark.parametrize("row", ROWS, ids=[row["stack"] for row in ROWS])
def test_a_row_is_consistent(row: dict[str, object]) -> None:
    criteria, psnr = row["criteria"], row["psnr"]
    assert isinstance(criteria, dict) and isinstance(psnr, list)
    failed = [code for code, outcome in criteria.items() if outcome == "failed"]
    assert (row["verdict"] == "not-certified") == bool(failed) == bool(row["reasons"])
    assert re.fullmatch("[0-9a-f]{40}", str(row["commit"]))
    if row["verdict"] == "rehearsed":
        assert criteria["training-finishes"] == criteria["extensions-ran"] == "met"
        assert psnr[1] > psnr[0] and row["loss"][0] > row["loss"][1]  # type: ignore[index]
        assert any("GaussianRasterizer" in calls for calls in row["extensions"].values())  # type: ignore[attr-defined]


@pytest.mark.parametrize("row", FORKS, ids=[f"{row['repository']} {row['script']}" for row in FORKS])
def test_a_fork_is_served_or_refused_with_a_reason(row: dict[str, object]) -> None:
    assert re.fullmatch("[0-9a-f]{12}", str(row["commit"]))
    assert (row["outcome"] == "served") is not bool(row["refused"])
    if row["outcome"] == "served":
        assert row["script"] and any(re.search("raster|diff_gauss@", name) for name in row["drop_ins"])  # type: ignore[attr-defined]


def test_most_forks_are_served() -> None:
    """The aim was 20 of 27."""
    served = {row["repository"] for row in FORKS if row["outcome"] == "served"}
    assert len({row["repository"] for row in FORKS}) >= 25 and len(served) >= 20


def test_an_error_names_no_folder() -> None:
    error = {"code": "no-trainer", "what": "/home/me/x has no train.py."}
    row = fork_of("a+x@0123456789ab", {"error": error, "exit_code": 2})
    assert row["refused"] == ["no-trainer: a+x has no train.py."] and row["outcome"] == "not-tried"


def test_no_row_names_a_place_of_the_machine_that_made_it() -> None:
    assert not re.search(r'"/(?!\w*\W*")\w+/', RECORD.read_text(encoding="utf-8"))


def test_only_certificates_of_rehearse_are_taken(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no certificate of splatfix rehearse"):
        row_of({"command": "certify", "stack": None, "scenes": []})
