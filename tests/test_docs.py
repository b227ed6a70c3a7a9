"""README and change log say what is there."""

import json
import re
import shutil
import textwrap
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from smoke_trainer.__main__ import parser as smoke_parser
from splatfix import __version__
from splatfix.checks import Check, all_checks, registry
from splatfix.cli import app
from splatfix.context import make_context
from splatfix.core.step import commands
from splatfix.core.toml import parse_toml
from splatfix.knowledge import load_overrides, using
from splatfix.knowledge.breakages import breakage
from splatfix.knowledge.lanes import find_lane
from tests.plan.machines import TORCH, machine
from tools.docs import _check_page

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_result_is_on_the_first_screen() -> None:
    lines = README.splitlines()
    assert lines.index("    $ splatfix diagnose") < 17
    assert next(at for at, line in enumerate(lines) if "Never run on any other GPU" in line) < 12


def test_the_home_page_says_what_the_readme_says() -> None:
    home = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    head = README.partition("# splatfix\n\n")[2].partition("    $ splatfix diagnose")[0].rstrip()
    assert "    splatfix certify" in head and head in home


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


def test_no_page_installs_splatfix_from_an_index() -> None:
    """It is on none: whoever registers that name there would be run."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"(?:install|run|uvx) +(?:-\S+ +)*['\"]?splatfix\b(?![\w./-])", text)
        assert not named, page.name


def test_the_page_of_the_smoke_trainer_has_every_option() -> None:
    page = (ROOT / "docs" / "commands" / "smoke_trainer.md").read_text(encoding="utf-8")
    assert "commands/smoke_trainer.md" in (ROOT / "zensical.toml").read_text(encoding="utf-8")
    actions = smoke_parser()._actions
    missing = [name for action in actions for name in action.option_strings[-1:] if f"`{name}" not in page]
    assert not missing and len(actions) > 20


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


# The examples of docs/extending.md


def examples(language: str, heading: str) -> list[str]:
    """The blocks of a language below a heading."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", section, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(text) for _, text in blocks]


def test_the_check_of_the_page_finds_what_it_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    (words,), (code,) = examples("toml", "A check"), examples("python", "A check")
    monkeypatch.setattr(registry, "words_in", lambda family: parse_toml(words))
    exec(compile(code, "docs/extending.md", "exec"), {})  # nosec B102 - a page of ours
    check = registry.REGISTERED.pop("numpy-too-new")
    assert check.page
    for numpy, torch, fails in (
        ("2.2.0", "2.1.0", True),
        ("1.26.4", "2.1.0", False),
        ("2.2.0", "2.3.0", False),
    ):
        facts = machine(torch=replace(TORCH, version=torch), packages={"numpy": numpy})
        findings = list(check.function(make_context(facts), check))
        assert [finding.status.value for finding in findings] == ["fail"] * fails
        assert all(commands(finding.remedy) for finding in findings)


def test_the_rows_of_the_page_can_be_laid_over_the_tables(tmp_path: Path) -> None:
    for text in examples("toml", "A row that this release lacks"):
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        load_overrides(tmp_path / "mine.toml")


def test_the_breakage_of_the_page_is_one(tmp_path: Path) -> None:
    (text,) = examples("toml", "A known breakage")
    overrides = tmp_path / "knowledge.json"
    overrides.write_text(json.dumps({"breakages": {"example": parse_toml(text)}}), encoding="utf-8")
    with using(overrides):
        record = breakage("example")
        assert record.find and record.edits and record.log


def test_the_lane_of_the_page_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = examples("toml", "A container lane")
    lanes = Path(shutil.copytree(ROOT / "dockerfiles", tmp_path / "dockerfiles")) / "lanes.toml"
    lanes.write_text(f"{lanes.read_text(encoding='utf-8')}\n{text}", encoding="utf-8")
    monkeypatch.setattr("splatfix.knowledge.lanes.bundled", lambda name: tmp_path / name)
    lane = find_lane("cpu-standard")
    assert (lane.suite, lane.torch) == ("standard", find_lane("cpu").torch)


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.code)
def test_the_page_of_a_check_says_what_to_do(check: Check) -> None:
    """And is found by the words of the common errors, which people search for."""
    errors = (ROOT / "docs" / "common-errors.md").read_text(encoding="utf-8")
    page = _check_page(check, errors)
    assert f"splatfix diagnose --only {check.code}" in page.partition("## What to do")[2]
    for row in (line for line in errors.splitlines() if f"checks/{check.code}.md" in line):
        assert row.split("|")[1].strip() in page.partition("## What people see")[2]
