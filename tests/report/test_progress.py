"""The progress of a training on a terminal: names of the user's scenes are words, whatever signs are in them."""

from __future__ import annotations

import io

from rich.console import Console

from splatfix.report.progress import training


def test_a_scene_may_be_called_anything() -> None:
    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=True, width=100, color_system=None, _environ={"TERM": "xterm"}
    )
    with training(console) as show:
        for name in ("attic [old]", "cellar[/]"):
            show(name, {"iterations": 10, "iteration": 5, "seconds": 2.0, "loss": 0.1})
    assert "attic [old]" in stream.getvalue() and "cellar[/]" in stream.getvalue()
    assert "5/10, 2.5 it/s, loss 0.1000" in stream.getvalue()
