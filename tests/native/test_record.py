"""The record of real builds holds what a reader relies on: every field, every target in every fatbin, nothing beyond."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from splatfix.cli import app
from splatfix.knowledge import Arch
from splatfix.knowledge.breakages import breakages
from tools.builds import table, worked

PATH = Path(__file__).parents[1] / "records" / "native_builds.json"
TEXT = PATH.read_text(encoding="utf-8")
RECORD: dict[str, Any] = json.loads(TEXT)
BUILDS: list[dict[str, Any]] = RECORD["builds"]
COMMANDS = [row for key in ("builds", "refused", "forced", "repaired", "provided") for row in RECORD[key]]


def name(row: dict[str, Any]) -> str:
    return f"{row['source']} {row['commit']}"


def targets(command: str) -> list[Arch]:
    return [Arch.parse(text) for text in re.findall(r"--target (\S+)", command)]


def carries(fatbin: list[str], target: Arch) -> bool:
    """Machine code for exactly this target; what is recorded here never leans on PTX."""
    return any(Arch.parse(text.removeprefix("sass ")) == target for text in fatbin)


@pytest.mark.parametrize("row", [*BUILDS, *RECORD["forced"], *RECORD["provided"]], ids=name)
def test_every_target_is_in_every_fatbin_and_nothing_is_said_to_compute(row: dict[str, Any]) -> None:
    assert row["fatbins"] and targets(row["command"])
    for target in targets(row["command"]):
        assert all(carries(fatbin, target) for fatbin in row["fatbins"])
    assert [text.split(":")[0] for text in row["not_reached"]] == ["computes"], "that needs a GPU"


def test_the_commands_still_exist() -> None:
    shown = CliRunner().invoke(app, ["install", "--help"], env={"COLUMNS": "120"}).output
    for row in COMMANDS:
        assert row["command"].startswith("splatfix install ")
        for option in re.findall(r"--[a-z-]+", row["command"]):
            assert option in shown, option


def test_a_forced_build_is_marked_a_refusal_has_options() -> None:
    for row in RECORD["forced"]:
        assert row["torch"].partition("+")[2] and row["marked"] and row["reverted"] is True
        assert "fail" in row["diagnose"]
    for row in RECORD["refused"]:
        assert row["error"] and row["fix"] and row["changed"] == "nothing"
    for row in RECORD["without_splatfix"]:
        assert set(row["cured_by"]) <= {item.key for item in breakages() if item.edits}


def test_nothing_of_the_machine_is_in_it() -> None:
    assert not re.search(r"/(work|root|home|tmp|usr|opt)/", TEXT)


ATTEMPTS = [
    pytest.param(how, attempt, id=f"{row['source']} {how}")
    for key in ("compared", "unprepared")
    for row in RECORD[key]
    for how, attempt in row.items()
    if isinstance(attempt, dict)
]
COMPARED = {"pip": "plain pip", "before": "splatfix before", "after": "splatfix now"}
UNPREPARED = {"pip": "plain pip", "first": "splatfix, first try", "after": "after a cure"}
DOCS = Path(__file__).parents[2] / "docs" / "verified.md"


@pytest.mark.parametrize(("how", "attempt"), ATTEMPTS)
def test_an_attempt_says_how_it_ended(how: str, attempt: dict[str, Any]) -> None:
    assert {"date", "command", "exit", "seconds", "libraries"} <= attempt.keys()
    assert attempt["exit"] == 0 or attempt["said"]
    for library in attempt["libraries"].values():
        assert re.fullmatch(r"[0-9a-f]{64}", library["sha256"])
    if how == "pip":
        return
    (target,) = targets(attempt["command"])
    assert attempt.get("checkout", "unchanged") == "unchanged"  # a name on an index has none
    assert attempt["exit"] == 0 or not attempt["libraries"], "what fails is rolled back"
    for library in attempt["libraries"].values():
        assert library["code"].get(f"sass {target}", 0) == library["fatbins"]
        if "cuobjdump" in library:
            assert library["cuobjdump"] == f"{library['fatbins']} cubins, {target}"
    assert re.fullmatch(r"exact over [\d,]{5,} files", attempt.get("reverted", "exact over 10,000 files"))


def test_the_documents_hold_the_attempts() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for key, columns in (("compared", COMPARED), ("unprepared", UNPREPARED)):
        assert "\n".join(table(RECORD[key], columns)) in text, key
    assert {row["choice"] for row in RECORD["unprepared"]} == set(range(len(RECORD["chosen"])))
    for number in range(len(RECORD["chosen"])):
        tries = [worked(row["first"]) for row in RECORD["unprepared"] if row["choice"] == number]
        assert f"{sum(tries)} of {len(tries)} worked at the first try" in text
    now = [worked(row["after"]) for row in RECORD["compared"] if "after" in row]
    assert f"{sum(now)} of {len(now)} are built" in text
