from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from splatfix.install.build import BuildLines
from splatfix.plan import BuildWheel, CheckImport, VerifyWheel
from splatfix.report.progress import Doing, install_progress
from tests.archs import archs


@pytest.mark.parametrize(
    ("line", "said", "left"),
    [
        (
            "  [2/5] /usr/local/cuda/bin/nvcc -MD -c -c /s/cuda_rasterizer/forward.cu -o f.o",
            "compiled forward.cu (2 of 5)",
            60.0,
        ),
        ("  [5/5] g++ -MMD -c /s/ext.cpp -o f.o", "compiled ext.cpp (5 of 5)", None),
        ("  [1/31] nvcc -c /s/a.cu -o f.o", "compiled a.cu (1 of 31)", 1200.0),
        ("  gcc -Wall -fPIC -I/usr/include -c probe.c -o build/probe.o", "compiling probe.c", None),
        ("  building 'simple_knn._C' extension", "compiling the sources of simple_knn._C", None),
        ("  g++ -shared -Wl,-rpath build/probe.o -o _C.so", "linking", None),
        ("  copying pkg/__init__.py -> build/lib/pkg", None, None),
        ("", None, None),
    ],
)
def test_what_a_line_of_a_build_says(line: str, said: str | None, left: float | None) -> None:
    times = iter((100.0, 140.0))
    lines = BuildLines(lambda: next(times))
    assert (lines.describe(line), lines.left) == (said, left)


@pytest.mark.parametrize(
    ("passed", "said"),
    [
        (0, "about 20 min more"),
        (8 * 60, "about 12 min more"),
        (1150, "about 50 s more"),
        (1500, "the next takes longer: 25 min so far"),
    ],
)
def test_an_estimate_counts_down(passed: float, said: str) -> None:
    assert (
        Doing("compiled a.cu (1 of 3)", 1200.0, since=10.0).words(10 + passed)
        == f"compiled a.cu (1 of 3), {said}"
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_it_is_told_again_without_a_line_of_the_build(terminal: bool) -> None:
    stream = io.StringIO()
    action = BuildWheel(subject="one", source="/one")
    with install_progress(a_console(stream, terminal=terminal), every=0.02) as progress:
        progress.begin(action, 1, 4)
        progress.doing(action, "compiled a.cu (1 of 3)", 0.05)
        end = time.monotonic() + 10
        while "takes longer" not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.02)
    assert "takes longer" in stream.getvalue()


def a_console(stream: io.StringIO, *, terminal: bool = True) -> Console:
    """One of its own, whatever TERM, COLUMNS and the like say of the terminal that runs the tests."""
    return Console(
        file=stream, force_terminal=terminal, width=300, color_system=None, _environ={"TERM": "xterm"}
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_it_says_what_is_done_and_shows_what_is_going_on(terminal: bool) -> None:
    stream = io.StringIO()
    console = a_console(stream, terminal=terminal)
    with install_progress(console, verbose=True) as progress:
        for number, action in enumerate(
            (
                VerifyWheel(
                    subject="a[b]",
                    targets=archs("sm_120"),
                ),
                CheckImport(subject="a[b]"),
            ),
            1,
        ):
            progress.begin(action, number, 2)
            progress.doing(action, "compiling [x].cu")
            progress.end(action, "fits [all]")
    text = stream.getvalue()
    assert "✓ verify-wheel a[b]: fits [all]" in text and "✓ check-import a[b]: fits [all]" in text
    assert "[1/2]" in text and "compiling [x].cu" in text


def test_builds_side_by_side_have_a_line_each() -> None:
    stream = io.StringIO()
    console = a_console(stream)
    one, two = (BuildWheel(subject=name, source=f"/{name}") for name in ("one", "two"))
    with install_progress(console) as progress:
        progress.begin(one, 1, 4)
        progress.begin(two, 2, 4)
        progress.doing(one, "compiled a.cu (1 of 2)", 30.0)
        progress.doing(two, "linking")
        shown = stream.getvalue()
        assert "[1/4] build-wheel one" in shown and "compiled a.cu" in shown and "linking" in shown
        progress.end(two, "two-1.0.whl, compiled in 9 s")
        stream.truncate(0)
        progress.doing(two, "too late")
        progress.doing(one, "linking")
        progress.end(one, "one-1.0.whl, from the wheel cache")
    last = stream.getvalue()
    assert "too late" not in last and "one-1.0.whl, from the wheel cache" in last


@pytest.mark.parametrize(("width", "shown"), [(130, 99), (110, 99), (80, 0)])
def test_a_narrow_terminal_shows_the_time_and_what_compiles(width: int, shown: int) -> None:
    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=True, width=width, color_system=None, _environ={"TERM": "xterm"}
    )
    source = "/home/somebody/a/long/way/down/to/submodules/diff-gaussian-rasterization"
    action = BuildWheel(subject="diff_gaussian_rasterization", source=source, targets=archs("sm_120"))
    with install_progress(console) as progress:
        progress.begin(action, 1, 8, "/env/.splatfix/log")
        progress.doing(action, "compiled forward.cu (2 of 5)", 60.0)
    lines = stream.getvalue().replace("\r", "\n").splitlines()
    assert any("0:00:00" in line and "(2 of 5), about 60 s more"[:shown] in line for line in lines), lines
    assert any("[1/8] build-wheel diff_gaussian_rasterization" in line for line in lines)


@pytest.mark.parametrize("term", ["pipe", "dumb"])
def test_without_a_terminal_a_build_names_its_log(term: str) -> None:
    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=term == "dumb", width=300, color_system=None, _environ={"TERM": term}
    )
    action = BuildWheel(subject="tiny[x]", source="/source")
    with install_progress(console, every=0.05) as progress:
        progress.begin(action, 1, 4, "/env/.splatfix/journal/0001/build-tiny.log")
        progress.doing(action, "compiling [a].cu (2 of 5)")
        end = time.monotonic() + 10
        while "s, compiling" not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
        progress.end(action, "done")
        told = stream.getvalue()
        time.sleep(0.2)
    first, second, third, *_ = told.splitlines()
    assert first.startswith("[1/4] build tiny[x]")
    assert second == "      log: /env/.splatfix/journal/0001/build-tiny.log"
    assert third == "      tiny[x]: 0 s, compiling [a].cu (2 of 5)"
    assert stream.getvalue() == told, "it speaks of an action that is done"
