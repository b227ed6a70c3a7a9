"""The record of real builds holds what a reader relies on: every field, every target in every fatbin, nothing beyond."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from splatfix.cli import app
from splatfix.knowledge import Arch

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


def test_nothing_of_the_machine_is_in_it() -> None:
    assert not re.search(r"/(work|root|home|tmp|usr|opt)/", TEXT)
