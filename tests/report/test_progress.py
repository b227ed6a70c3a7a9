"""The progress of long work on a terminal: names of strangers are words, whatever signs are in them."""

import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from splatfix.model.steps import BuildWheel
from splatfix.report.console import page
from splatfix.report.progress import install_progress, training
from tests.hostile.words import CONTROL, NAMES, UNICODE


def terminal(stream: io.StringIO) -> Console:
    return page(stream, 300, force_terminal=True, _environ={"TERM": "xterm"})


def only_rich_moves_the_cursor(stream: io.StringIO) -> bool:
    shown = re.sub(r"\x1b\[(\?25[lh]|2K|\d*A|0m)|\r\x1b\[2K|[\r\n]", "", stream.getvalue())
    return shown.isprintable() and "\\x1b" in shown


@pytest.mark.parametrize("live", [True, False])
def test_a_scene_may_be_called_anything(live: bool) -> None:
    stream = io.StringIO()
    with training(terminal(stream) if live else page(stream, 300)) as show:
        for name in ("attic [old]", "cellar[/]", *NAMES.values(), CONTROL + UNICODE):
            show(name, {"iterations": 10, "iteration": 5, "iterations_per_second": 2.5, "loss": 0.1})
    assert "attic [old]" in stream.getvalue() and "cellar[/]" in stream.getvalue()
    assert not live or "iteration 5 of 10, 2.5 it/s, loss 0.1000, 0:02 left" in stream.getvalue()
    assert only_rich_moves_the_cursor(stream) and "rm -rf ~" in stream.getvalue()
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
            show("study", {"scene": 2, "scenes": 3, **(state if second else {})})
        show("study, again", {"scene": 2, "scenes": 3})
    assert stream.getvalue().splitlines() == [
        "kernels ...",
        "study (scene 2 of 3) ...",
        "study (scene 2 of 3): iteration 60 of 150, 1.0 it/s, host memory 0.50 GiB, 1:30 left",
        "study (scene 2 of 3): iteration 120 of 150, 1.0 it/s, host memory 0.50 GiB, 0:30 left",
        "study (scene 2 of 3): iteration 150 of 150, 1.0 it/s, host memory 0.50 GiB",
        "study, again (scene 2 of 3) ...",
    ]


@pytest.mark.parametrize("made", [terminal, lambda stream: page(stream, 300)])
def test_lines_of_a_build_are_text(made: Callable[[io.StringIO], Console]) -> None:
    stream = io.StringIO()
    with install_progress(made(stream), verbose=True) as progress:
        for name in (*NAMES.values(), CONTROL + UNICODE):
            step = BuildWheel(subject=name, source=name)
            progress.begin(step, 1, 2, f"/log/{name}")
            progress.doing(step, f"compiling {name}.cu")
            progress.end(step, f"built {name}")
    assert only_rich_moves_the_cursor(stream)
