"""Every block of commands in the README and on the site can be typed, and those that begin from nothing run as printed."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import typer

from splatfix.cli import app
from tests.report.html.browser import Page
from tests.tables import data
from tests.tools.test_site import FIFTY
from tests.tools.test_site import browser as browser
from tests.tools.test_site import which_torch as which_torch
from tools.site import ADDRESS, ROOT

KNOWN: dict[str, Any] = data(__file__)
INRIA = "https://github.com/graphdeco-inria/gaussian-splatting"
FIRST_PAGES = ("README.md", "docs/index.md", "docs/getting-started.md")
PAGES = ("README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(
    r"^```sh\n([\s\S]*?)^```$|((?:^    (?:git|pip|pipx|python3|splatfix|cd|make) .*\n(?:    .*\n|\n(?=    \w))*))",
    re.MULTILINE,
)


def blocks(page: str) -> list[list[str]]:
    """The commands of each block, without their comments."""
    text = (ROOT / page).read_text(encoding="utf-8").replace(" \\\n", " ")
    found = [re.sub(r"\s+#.*", "", "".join(match.groups(""))) for match in BLOCK.finditer(text)]
    return [[line.strip() for line in block.splitlines() if line.strip()] for block in found]


COMMANDS = [
    (page, line) for page in PAGES for block in blocks(page) for line in block if line.startswith("splatfix ")
]


def test_no_block_is_left_out() -> None:
    assert len(COMMANDS) > 60
    printed = [(page, block[0]) for page in FIRST_PAGES for block in blocks(page)]
    assert printed == [(row["page"], row["first"]) for row in KNOWN["blocks"]]
    assert sum("not_run" not in row for row in KNOWN["blocks"]) > 4
    for row in KNOWN["blocks"]:
        (block,) = (block for block in blocks(row["page"]) if block[0] == row["first"])
        assert all(word in "\n".join(block) for word in row.get("instead", ())), row["first"]
    assert ADDRESS in KNOWN["blocks"][0]["first"]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_every_command_of_a_block_can_be_typed(page: str, line: str) -> None:
    words = shlex.split(line.partition(" > ")[0])[1:]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(line, words)


def run(folder: Path, lines: Iterable[str]) -> str:
    """What lines say in a shell of somebody who has Python, git and pipx and nothing else. What is cloned comes from here."""
    for name, text in KNOWN["stack"].items():
        (folder / "stack" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "stack" / name).write_text(text, encoding="utf-8")
    shell = ["bash", f"{ROOT}/tests/test_blocks.sh", sys.executable, ADDRESS, ROOT, INRIA, folder / "stack"]
    given = "\n".join(lines)
    done = subprocess.run(shell, input=given, capture_output=True, text=True, cwd=folder, timeout=1500)
    said = f"{done.stdout}{done.stderr}"
    assert done.returncode == 0, said[-6000:]
    assert "No module named" not in said and "internal-error" not in said, said[-6000:]
    return said


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "row", [row for row in KNOWN["blocks"] if "not_run" not in row], ids=lambda row: row["first"][:40]
)
def test_a_block_runs_as_it_is_printed(row: dict[str, Any], tmp_path: Path) -> None:
    (block,) = (block for block in blocks(row["page"]) if block[0] == row["first"])
    text = "\n".join(block)
    for words, others in row.get("instead", {}).items():
        text = text.replace(words, others)
    run(tmp_path, (*row.get("before", ()), text))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_plan_of_the_site_runs_as_it_is_shown(browser: Page, which_torch: str, tmp_path: Path) -> None:
    """That of drop-ins, which a machine without a GPU can run; the rebuild differs from it by its toolkit."""
    here = [
        one for one in FIFTY if one.python == f"3.{sys.version_info[1]}" and one.system["key"] != "windows"
    ]
    browser.open(f"{which_torch}#{here[0].query}&stack=inria-2024")
    dropins = (
        "[...document.querySelectorAll('details')].find(one => one.innerHTML.includes('Or: pure-PyTorch'))"
    )
    commands = f"[...{dropins}.querySelectorAll('.command')].map(item => item.textContent)"
    lines = [re.sub(r"'torch==.*", "torch==2.13.0", line) for line in browser.value(commands)]
    assert "with splatfix's drop-in" in run(tmp_path, lines)
