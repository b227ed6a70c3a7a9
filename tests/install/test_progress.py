import io
import time

import pytest
from rich.console import Console

from splatfix.install.build import described
from splatfix.model.steps import BuildWheel, CheckImport, VerifyWheel
from splatfix.report.progress import install_progress
from tests.archs import archs
from tests.tables import data


@pytest.mark.parametrize(("line", "said"), data(__file__)["lines"])
def test_what_a_line_of_a_build_says(line: str, said: str) -> None:
    assert described(line) == said


ONE, TWO = (BuildWheel(subject=name, source=f"/{name}", targets=archs("sm_120")) for name in ("one", "two"))


def a_console(term: str = "xterm", width: int = 300) -> tuple[Console, io.StringIO]:
    """One of its own, whatever TERM, COLUMNS and the like say of the terminal that runs the tests."""
    stream, live = io.StringIO(), term != "pipe"
    how = {"force_terminal": live, "width": width, "color_system": None, "_environ": {"TERM": term}}
    return Console(file=stream, **how), stream  # type: ignore[arg-type]


def wait_for(text: str, stream: io.StringIO) -> None:
    end = time.monotonic() + 10
    while text not in stream.getvalue() and time.monotonic() < end:
        time.sleep(0.01)
    assert text in stream.getvalue()


@pytest.mark.parametrize("term", ["xterm", "pipe"])
def test_it_is_told_again_without_a_line_of_the_build(term: str) -> None:
    console, stream = a_console(term)
    with install_progress(console, every=0.02) as progress:
        progress.begin(ONE, 1, 4)
        progress.doing(ONE, "compiled a.cu (1 of 3)")
        wait_for("compiled a.cu (1 of 3)", stream)
        stream.truncate(0)
        wait_for("compiled a.cu (1 of 3)", stream)


@pytest.mark.parametrize("term", ["xterm", "pipe"])
@pytest.mark.parametrize("verbose", [True, False])
def test_it_says_what_is_done_and_shows_what_is_going_on(term: str, verbose: bool) -> None:
    """Steps that take no time are told with -v alone."""
    console, stream = a_console(term)
    steps = (ONE, VerifyWheel(subject="a[b]", targets=archs("sm_120")), CheckImport(subject="a[b]"))
    with install_progress(console, verbose=verbose) as progress:
        for number, step in enumerate(steps, 1):
            progress.begin(step, number, 3)
            progress.doing(step, "compiling [x].cu")
            progress.end(step, "fits [all]")
    text = stream.getvalue()
    assert "✓ build-wheel one: fits [all]" in text and "[1/3]" in text
    assert ("compiling [x].cu" in text) is (verbose or term == "xterm")
    for step in ("verify-wheel", "check-import"):
        assert (f"✓ {step} a[b]: fits [all]" in text) is verbose


def test_builds_side_by_side_have_a_line_each() -> None:
    console, stream = a_console()
    with install_progress(console) as progress:
        progress.begin(ONE, 1, 4)
        progress.begin(TWO, 2, 4)
        progress.doing(ONE, "compiled a.cu (1 of 2)")
        progress.doing(TWO, "linking")
        shown = stream.getvalue()
        assert "[1/4] build-wheel one (0:00:00) compiled a.cu" in shown and "[2/4] build-wheel two" in shown
        progress.end(TWO, "two-1.0.whl, compiled in 9 s")
        stream.truncate(0)
        progress.doing(TWO, "too late")
        progress.end(ONE, "one-1.0.whl, from the wheel cache")
    assert "too late" not in stream.getvalue() and "one-1.0.whl, from the wheel cache" in stream.getvalue()


@pytest.mark.parametrize("term", ["pipe", "dumb"])
def test_without_a_terminal_a_build_names_its_log(term: str) -> None:
    console, stream = a_console(term)
    step = BuildWheel(subject="tiny[x]", source="/source")
    with install_progress(console, every=0.05) as progress:
        progress.begin(step, 1, 4, "/env/.splatfix/journal/0001/build-tiny.log")
        progress.doing(step, "compiling [a].cu (2 of 5)")
        wait_for("(0:00:00) compiling", stream)
        progress.end(step, "done")
        told = stream.getvalue()
        time.sleep(0.2)
    first, second, third, *_ = told.splitlines()
    assert first.startswith("[1/4] build tiny[x]")
    assert second == "      log: /env/.splatfix/journal/0001/build-tiny.log"
    assert third == "      [1/4] build-wheel tiny[x] (0:00:00) compiling [a].cu (2 of 5)"
    assert stream.getvalue() == told, "it speaks of an step that is done"
