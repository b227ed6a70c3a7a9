"""Lines and progress on terminals: prose wraps, commands stay runnable, and names of strangers are words."""

import io
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from splatfix.core.step import Command, run, set_variable
from splatfix.model.steps import BuildWheel
from splatfix.report import console as consoles
from splatfix.report.console import escape, page, prose, shorten_home, show_command, show_todo, table
from splatfix.report.progress import install_progress, training
from tests.hostile.words import CONTROL, MARKUP, NAMES, UNICODE
from tests.screens import on_screen

PIP = ("/home/user/my env/bin/python", "-m", "pip", "install", "torch==2.9.*")
PIP += ("--index-url", "https://x.example")


def printed(width: int, draw: Callable[[Console], None]) -> list[str]:
    return on_screen(draw, width=width).splitlines()


def test_no_word_is_broken_and_signs_stay_signs() -> None:
    path = "/a-long-folder-name" * 5
    lines = printed(40, lambda console: prose(console, "    → ", f"look into {path} :warning: now"))
    assert lines == ["    → look into", f"      {path}", "      :warning: now"]
    lines = printed(40, lambda console: show_todo(console, [set_variable("CUDA_HOME", path)], indent=0))
    assert lines == [f"$ export CUDA_HOME={path}"]


@pytest.mark.parametrize("width", [30, 50, 80])
def test_a_long_command_stays_runnable(width: int) -> None:
    lines = printed(width, lambda console: show_command(console, Command(PIP), indent=2))
    assert len(lines) > 1 and all(line.endswith(" \\") for line in lines[:-1])
    pasted = "\n".join(lines).removeprefix("  $ ").replace("\\\n", " ")
    assert tuple(shlex.split(pasted)) == PIP
    assert not any(line.rstrip(" \\").endswith("--index-url") for line in lines), "an option keeps its value"


def test_the_home_folder_is_a_tilde_in_prose_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")

    def draw(console: Console) -> None:
        prose(console, "", "in /home/me/env, /home/me2 and x/home/me/y")
        show_command(console, Command(("ls", "/home/me/env")), indent=0)

    assert printed(80, draw) == ["in ~/env, /home/me2 and x/home/me/y", "$ ls /home/me/env"]
    monkeypatch.delenv("HOME")  # cron and services have none
    assert shorten_home(f"in {Path.home() / 'env'}") == f"in {Path('~', 'env')}"


@pytest.mark.parametrize("columns", [None, "0", "wide"])
def test_a_pipe_gets_whole_lines(columns: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert consoles.out.__wrapped__().width > 10_000


@pytest.mark.parametrize("text", [*NAMES.values(), CONTROL + UNICODE + MARKUP])
def test_strangers_words_are_one_line_of_text(text: str) -> None:
    for draw in (
        lambda console: prose(console, f"[bold]{escape(text)}[/] ", f"[dim]{escape(text)}[/]"),
        lambda console: prose(console, "", f"{escape(text)} x", hang=2),
        lambda console: table(console, ["name", text], [(text, text)]),
        lambda console: show_todo(console, [run(text, text=text)], indent=2, windows=False),
        lambda console: console.print(text, markup=False, soft_wrap=True),
        lambda console: console.print(Text(text), soft_wrap=True),
    ):
        stream = io.StringIO()
        draw(page(stream, 9999))
        assert all(sign.isprintable() or sign == "\n" for sign in stream.getvalue())


def test_styles_still_reach_a_terminal() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system="standard")
    prose(console, "", f"[red]{escape(CONTROL)}[/]")
    assert stream.getvalue().startswith("\x1b[31m\\x1b[2J") and stream.getvalue().count("\x1b") == 2


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize("width", [30, 200])
@pytest.mark.parametrize("name", NAMES.values())
def test_bash_runs_the_command_that_is_shown(name: str, width: int) -> None:
    command = Command(("printf", "%s\\0", name, f"--out={name}", name))
    lines = printed(width, lambda console: show_command(console, command, indent=2, windows=False))
    done = subprocess.run(["bash"], input="\n".join(lines)[4:].encode(), capture_output=True, check=True)
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in command.argv[2:]]


def terminal(stream: io.StringIO) -> Console:
    return page(stream, 300, force_terminal=True, _environ={"TERM": "xterm"})


@pytest.mark.parametrize("live", [True, False])
def test_what_is_under_way_may_be_called_anything(live: bool) -> None:
    """A scene, a package, and the lines of a build."""
    stream = io.StringIO()
    console = terminal(stream) if live else page(stream, 300)
    names = ("attic [old]", "cellar[/]", *NAMES.values(), CONTROL + UNICODE)
    with training(console) as show:
        for name in names:
            show(name, {"iterations": 10, "iteration": 5, "iterations_per_second": 2.5, "loss": 0.1})
            if live:
                time.sleep(0.1)  # it is drawn some times a second
    assert "attic [old]" in stream.getvalue() and "cellar[/]" in stream.getvalue()
    assert not live or "iteration 5 of 10, 2.5 it/s, loss 0.1000, 0:02 left" in stream.getvalue()
    with install_progress(console, verbose=True) as progress:
        for name in names:
            step = BuildWheel(subject=name, source=name)
            progress.begin(step, 1, 2, f"/log/{name}")
            progress.doing(step, f"compiling {name}.cu")
            progress.end(step, f"built {name}")
    # only rich moves the cursor
    shown = re.sub(r"\x1b\[(\?25[lh]|2K|\d*A|0m)|\r\x1b\[2K|[\r\n]", "", stream.getvalue())
    assert shown.isprintable() and "\\x1b" in shown and "rm -rf ~" in shown
    assert "\n    $ rm" not in stream.getvalue()


def test_a_log_has_one_line_a_minute_and_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("splatfix.report.progress.time.monotonic", lambda: now)
    stream = io.StringIO()
    with training(page(stream, 300)) as show:
        show("kernels", {})
        for second in range(151):
            now = 1000.0 + second
            state = {"iteration": second, "iterations": 150, "iterations_per_second": 1.0, "rss_gb": 0.5}
            show("study (scene 2 of 3)", state if second else {})
        show("study, again (scene 2 of 3)", {})
    assert stream.getvalue().splitlines() == [
        "kernels ...",
        "study (scene 2 of 3) ...",
        "study (scene 2 of 3): iteration 60 of 150, 1.0 it/s, host memory 0.50 GiB, 1:30 left",
        "study (scene 2 of 3): iteration 120 of 150, 1.0 it/s, host memory 0.50 GiB, 0:30 left",
        "study (scene 2 of 3): iteration 150 of 150, 1.0 it/s, host memory 0.50 GiB",
        "study, again (scene 2 of 3) ...",
    ]
