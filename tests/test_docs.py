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


def test_the_readme_names_the_two_commands() -> None:
    assert README.index("make demo") < README.index("make test")


def test_the_first_result_is_on_the_first_screen() -> None:
    lines = README.splitlines()
    assert lines.index("    $ splatfix diagnose") < 12
    assert next(at for at, line in enumerate(lines) if "Not run on a GPU" in line) < 60


def test_every_command_of_the_readme_exists() -> None:
    named = set(re.findall(r"`splatfix ([a-z]+)", README))
    shown = CliRunner().invoke(app, ["--help"]).output
    assert len(named) >= 6
    for command in named:
        assert re.search(rf"^│ {command}\b", shown, re.MULTILINE), command


def test_make_targets_of_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {target for page in pages for target in re.findall(r"make ([a-z-]+)", page.read_text("utf-8"))}
    known = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert {"demo", "test", "docs", "gpu-check"} <= named & known
    prose = {"it", "its", "such", "pages", "what", "certificates"}
    assert named - known <= prose, named - known - prose


def test_paths_that_documents_name_exist() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        for path in re.findall(
            r"`((?:splatfix|smoke_trainer|patches|tools|tests|dockerfiles)/[\w./-]+)`", text
        ):
            assert "NAME" in path or (ROOT / path).exists(), f"{page.name}: {path}"


def test_the_changelog_has_this_version_ahead() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in changelog or f"## [{__version__}]" in changelog


def test_checks_named_in_common_errors_exist() -> None:
    page = (ROOT / "docs" / "common-errors.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == 10
    codes = {item.code for item in all_checks()}
    for row in rows:
        named = set(re.findall(r"`([a-z0-9-]+)`", row[2]))
        assert named and named <= codes, row[2]
