"""README and change log say what is there."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from splatfix import __version__
from splatfix.checks import all_checks
from splatfix.cli import app

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_opens_with_the_two_commands() -> None:
    head = README[: README.index("## ", README.index("make test"))]
    assert head.index("make demo") < head.index("make test")


def test_every_command_of_the_readme_exists() -> None:
    named = set(re.findall(r"^    (?:\$ )?splatfix ([a-z]+)", README, re.MULTILINE))
    shown = CliRunner().invoke(app, ["--help"]).output
    assert named
    for command in named:
        assert re.search(rf"^│ {command}\b", shown, re.MULTILINE), command


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_change_log_knows_this_version() -> None:
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_findings_of_the_readmes_table_exist_and_have_a_class() -> None:
    table = README[README.index("| what people see | finding | plan |") : README.index("### certify")]
    rows = [line.split("|") for line in table.splitlines()[2:] if line.startswith("|")]
    assert len(rows) == 10
    codes = {item.code for item in all_checks()}
    for row in rows:
        named = set(re.findall(r"`([a-z0-9-]+)`", row[2]))
        assert named and named <= codes, row[2]
