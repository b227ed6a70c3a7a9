"""Where no thread can be started (a container's limit of processes, ``ulimit -v``) all is done without."""

import io
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from splatfix.core.runner import Runner
from splatfix.explain.passthrough import run_and_copy
from splatfix.facts.system.parallel import each, within
from splatfix.install.parallel import parallel
from splatfix.report.console import page
from splatfix.report.progress import install_progress, training

BOTH = "import sys; print('out'); sys.stdout.flush(); print('err', file=sys.stderr); sys.exit(3)"


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_probes() -> None:
    assert within(5, lambda: 7).value == 7
    assert "broke" in (within(5, lambda: 1 // 0).error or "")
    assert each(lambda item: item * 2, range(9)) == [0, 2, 4, 6, 8, 10, 12, 14, 16]


def test_builds_one_after_another() -> None:
    told: list[str] = []

    def begin(name: str) -> None:
        told.append(f"{name} begins")

    parallel("ab", 2, lambda _: 1, begin, lambda name, stop: name, lambda _, name: told.append(name))
    assert sorted(told) == ["a", "a begins", "b", "b begins"]
    with pytest.raises(ZeroDivisionError):
        parallel("a", 2, lambda _: 1, begin, lambda name, stop: 1 // 0, lambda *_: None)


@pytest.mark.skipif(sys.platform == "win32", reason="a signal keeps the time")
def test_a_child_has_its_time_limit(tmp_path: Path) -> None:
    lines: list[str] = []
    argv = [sys.executable, "-c", "import time; print('a', flush=True); time.sleep(60)"]
    stop = threading.Event()
    done = Runner().run(argv, timeout=0.3, on_line=lines.append, log=tmp_path / "log", stop=stop)
    assert done.returncode is None and "within 0.3 s" in done.error
    short = Runner().run([sys.executable, "-c", BOTH], timeout=60, on_line=lines.append)
    assert short.returncode == 3 and lines[-2:] == ["out", "err"]


@pytest.mark.skipif(sys.platform == "win32", reason="pipes cannot be waited for together")
def test_a_command_on_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "copy").open("wb") as copy:
        assert run_and_copy([sys.executable, "-c", BOTH], copy) == 3
    assert capfd.readouterr() == ("out\n", "err\n")
    assert sorted((tmp_path / "copy").read_bytes().split()) == [b"err", b"out"]


def test_what_only_tells_how_far_it_is() -> None:
    stream = io.StringIO()
    terminal: Console = page(stream, 300, force_terminal=True, _environ={"TERM": "xterm"})
    with install_progress(terminal), training(terminal) as show:
        show("study", {})
    assert "study" in stream.getvalue()


def test_a_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    from splatfix.app.diagnose import DiagnoseRequest, diagnose

    result = diagnose(DiagnoseRequest(python=sys.executable))
    assert result.findings
