"""Lines on narrow terminals: prose wraps under its own beginning, words and commands stay whole; pipes get whole lines."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from splatfix.install import CachedWheel
from splatfix.report.console import paragraph, prose, table
from splatfix.report.installation import show_cache
from tests.machines import folder

REMEDY = "Install gcc 10 (7 at least). On Debian and Ubuntu: sudo apt-get install g++-10"


def printed(width: int, draw: Callable[[Console], None]) -> list[str]:
    stream = io.StringIO()
    draw(Console(file=stream, width=width, color_system=None))
    return stream.getvalue().splitlines()


def test_prose_hangs_under_its_first_word() -> None:
    lines = printed(40, lambda console: prose(console, "  [green]✓[/] ", "one [bold]two[/] three " * 5))
    assert lines == [
        "  ✓ one two three one two three one two",
        "    three one two three one two three",
    ]


def test_no_word_is_broken_and_signs_stay_signs() -> None:
    path = "/a-long-folder-name" * 5
    lines = printed(40, lambda console: prose(console, "    → ", f"look into {path} :warning: now"))
    assert lines == ["    → look into", f"      {path}", "      :warning: now"]


def test_a_command_at_the_end_is_never_broken() -> None:
    *before, last = printed(40, lambda console: prose(console, "     → ", REMEDY))
    assert before == ["     → Install gcc 10 (7 at least). On"]
    assert last == "       Debian and Ubuntu: sudo apt-get install g++-10"
    command = "splatfix certify --device cuda --python /home/user/gs/env/bin/python"
    assert printed(30, lambda console: prose(console, "→ ", command)) == [f"→ {command}"]
    blank = "'/home/user/my env/bin/python' -m pip install --upgrade setuptools"
    assert printed(30, lambda console: prose(console, "→ ", blank)) == [f"→ {blank}"]


def test_a_head_that_leaves_no_room_has_a_line_of_its_own() -> None:
    lines = printed(
        40, lambda console: prose(console, "✓ rasterizer diff_gaussian_rasterization ", "word " * 9)
    )
    assert lines == [
        "✓ rasterizer diff_gaussian_rasterization",
        "  word word word word word word word",
        "  word word",
    ]


def test_a_paragraph_keeps_its_lines_and_indents_what_follows() -> None:
    lines = printed(30, lambda console: paragraph(console, "alpha beta gamma\n\ndelta " * 2, first=2, then=4))
    assert lines == ["  alpha beta gamma", "    ", "    delta alpha beta gamma", "    ", "    delta"]


def test_a_table_becomes_paragraphs_where_it_has_no_room() -> None:
    rows = [("no-kernel-image", "extension", "Extensions carry code [for] the GPU")]

    def draw(console: Console) -> None:
        table(console, ("code", "family", "title"), rows)

    assert printed(80, draw) == [
        "code             family     title",
        "no-kernel-image  extension  Extensions carry code [for] the GPU",
    ]
    assert printed(56, draw)[1:] == [
        "no-kernel-image  extension  Extensions carry code [for]",
        "                            the GPU",
    ]
    assert printed(36, draw) == [
        "no-kernel-image  extension",
        "  Extensions carry code [for] the",
        "  GPU",
    ]


COMMANDS = [
    ("diagnose", "--facts", str(folder("rtx-2080-ubuntu-package")), "--verbose"),
    ("install", "--dry-run", "--why", "--facts", str(folder("rtx-5080"))),
    ("checks", "list"),
    ("checks", "show", "no-kernel-image"),
    ("diagnose", "--facts", "/no/such/file/" + "and-none-of-this-name/" * 3),
]


def said(words: tuple[str, ...], columns: str | None) -> str:
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    env |= {"COLUMNS": columns} if columns else {}
    argv = [sys.executable, "-m", "splatfix", *words]
    done = subprocess.run(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert "Traceback" not in done.stdout
    return done.stdout


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_a_narrow_terminal_gets_the_same_words(words: tuple[str, ...]) -> None:
    """Whatever is wider than asked for is one word, or ends with a command."""
    whole = said(words, None)
    for columns in (60, 40):
        narrow = said(words, str(columns))
        if words != ("checks", "list"):  # without room for a table it has no headings
            assert narrow.split() == whole.split()
        for line in narrow.splitlines():
            text = line.strip()
            starts = ("$ ", "splatfix", "sudo")
            tails = (text, text.partition(" ")[2], *text.split(": ")[1:])
            whole_word = " " not in text
            assert len(line) <= columns or whole_word or any(tail.startswith(starts) for tail in tails), line


def test_the_wheel_cache_on_a_narrow_terminal() -> None:
    name = "diff_gaussian_rasterization-0.0.0-cp311-cp311-linux_x86_64.whl"
    entry = CachedWheel(
        "a1",
        name,
        3 << 20,
        "",
        {"TORCH_CUDA_ARCH_LIST": "12.0", "torch": "2.11.0+cu130 x"},
        "inria/dgr at 9c5c2028f6",
        "2026-03-04",
    )
    lines = printed(40, lambda console: show_cache(console, Path("/cache"), [entry]))
    assert lines == [
        name,
        "  3.0 MiB  12.0, torch 2.11.0+cu130,",
        "  from inria/dgr at 9c5c2028f6,",
        "  2026-03-04, key a1",
        "1 wheel(s) in /cache",
    ]


def test_a_pipe_gets_whole_lines_whatever_columns_nonsense_says() -> None:
    words = ("checks", "list")
    assert said(words, "0") == said(words, "wide") == said(words, None)
    assert max(map(len, said(words, None).splitlines())) > 80
