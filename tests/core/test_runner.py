"""The runner: timeouts end whole process trees, output is kept, nothing raises for what a child does."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.core import output, runner
from splatfix.core.runner import Runner
from splatfix.core.scratch import sweep
from tests.conftest import ROOT
from tests.processes import assert_gone
from tests.tables import data

RUNNER = Runner()
_TEXTS: dict[str, str] = data(__file__)["texts"]
ABOUT_TO_END, WITH_CHILD, KILLED = (_TEXTS[name] for name in ("about-to-end", "with-child", "killed"))


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_and_code_come_back() -> None:
    """What is no UTF-8 is replaced."""
    code = "import sys; sys.stdout.buffer.write(b'out\\xff\\n'); print('err', file=sys.stderr); sys.exit(4)"
    done = RUNNER.run(python(code), timeout=20)
    assert (done.returncode, done.stdout, done.stderr, done.ok) == (4, "out\ufffd\n", "err\n", False)
    assert done.why() == "exit code 4: err"


def test_a_program_that_is_not_there_and_a_signal_are_told_not_raised() -> None:
    done = RUNNER.run(["no-such-program-here"], timeout=5)
    assert done.returncode is None and "could not start no-such-program-here" in done.why()
    assert RUNNER.run(python("import os; os.abort()"), timeout=20).why() == "ended by SIGABRT"


def wait_for(path: Path) -> str:
    for _ in range(1000):
        if path.exists():
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f"{path} did not come")


@pytest.mark.skipif(os.name != "posix", reason="process numbers as POSIX has them")
def test_a_timeout_ends_the_grandchildren_too(tmp_path: Path) -> None:
    told, timeout = tmp_path / "told", 0.4
    while not told.exists():  # a busy machine may need longer to start two programs
        timeout *= 2
        done = RUNNER.run([*python(WITH_CHILD), told], timeout=timeout)
        assert done.returncode is None and timeout < 100
        assert done.why() == f"no answer within {timeout:g} s"
    assert_gone(told.read_text())


def test_lines_are_told_while_it_runs_and_logged(tmp_path: Path) -> None:
    lines: list[tuple[str, float]] = []

    def told(line: str) -> None:
        lines.append((line, time.monotonic()))

    code = "import time\nfor i in range(3):\n print(i, flush=True); time.sleep(0.2)"
    done = RUNNER.run(python(code), timeout=20, on_line=told, log=tmp_path / "log")
    assert [line for line, _ in lines] == ["0", "1", "2"]
    assert lines[0][1] < lines[2][1] - 0.2
    assert (tmp_path / "log").read_text() == "0\n1\n2\n" == done.stdout


def test_a_child_that_never_stops_talking_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``.pth`` file may print anything into the answer of a probe."""
    monkeypatch.setattr(runner, "MOST_ANSWER", 1 << 20)
    endless = python("import os\nwhile True: os.write(1, b'x' * 65536)")
    done = RUNNER.run(endless, timeout=60)
    assert done.returncode is None and len(done.stdout) <= 1 << 20
    assert done.why() == "it said more than 1 MiB, the most that is read"


def test_of_very_long_output_the_middle_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MOST_ANSWER", 1 << 20)
    told: list[int] = []
    code = "print('first'); print(('x' * 65535 + chr(10)) * 64 + 'x' * (1 << 20)); print('last')"
    done = RUNNER.run(python(code), timeout=60, on_line=lambda line: told.append(len(line)))
    assert done.ok and len(done.stdout) <= 1 << 20
    assert done.stdout.startswith("first\nx") and done.stdout.endswith("x\nlast\n")
    assert len(told) == 67 and max(told) == 1 << 16


def test_a_followed_log_of_any_length_ends_at_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "MOST_LOG", 1000)
    done = RUNNER.run(python("for i in range(1000): print('line', i)"), timeout=20, log=tmp_path / "log")
    assert done.ok and done.stdout.endswith("line 999\n")
    *lines, last = (tmp_path / "log").read_text().splitlines()
    assert len(lines) < 200 and "is not kept" in last


def test_a_child_that_closes_both_streams_and_goes_on_is_ended() -> None:
    done = RUNNER.run(
        python("import os, time\nos.write(1, b'said\\r\\n'); os.close(1); os.close(2); time.sleep(60)"),
        timeout=1,
    )
    assert (done.returncode, done.stdout, done.why()) == (None, "said\n", "no answer within 1 s")


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("group", [(), ("group",)])
def test_another_thread_stops_it_with_its_children(
    tmp_path: Path, follow: bool, group: tuple[str, ...]
) -> None:
    if group and sys.platform != "linux":
        pytest.skip("descendants are found in /proc")
    stop, told = threading.Event(), tmp_path / "told"
    threading.Thread(target=lambda: (wait_for(told), stop.set())).start()
    log = tmp_path / "log" if follow else None
    done = RUNNER.run([*python(WITH_CHILD), told, *group], timeout=100, stop=stop, log=log)
    assert done.returncode is None and done.why() == "stopped"
    assert_gone(told.read_text())


def test_a_child_writes_no_bytecode_unless_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "module_of_theirs.py").write_text("answer = 42\n")
    argv = [sys.executable, "-c", "import module_of_theirs"]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    assert RUNNER.run(argv, timeout=30, cwd=tmp_path, env=clean).ok
    assert not (tmp_path / "__pycache__").exists()
    told = {**clean, "PYTHONDONTWRITEBYTECODE": ""}
    assert RUNNER.run(argv, timeout=30, cwd=tmp_path, env=told).ok
    assert (tmp_path / "__pycache__").exists()


@pytest.mark.skipif(os.name != "posix", reason="signals and sessions as POSIX has them")
@pytest.mark.parametrize(
    ("in_thread", "signal_at_all", "signal_while_starting"),
    [(True, False, False), (True, True, False), (False, True, True)],
)
def test_no_child_outlives_a_process_that_ends(
    in_thread: bool, signal_at_all: bool, signal_while_starting: bool
) -> None:
    """Not one that a thread waits for, at a normal end or an interrupt, and not one that was just being started."""
    code = ABOUT_TO_END.format(
        in_thread=in_thread, signal_at_all=signal_at_all, signal_while_starting=signal_while_starting
    )
    done = RUNNER.run(python(code), timeout=60, cwd=ROOT)
    assert done.ok, done.stderr
    *words, pid = done.stdout.split()
    assert words == (["interrupted"] if signal_at_all else [])
    assert_gone(pid)


@pytest.mark.parametrize("path", [".", "", "./bin"])
def test_a_program_of_the_current_folder_is_not_found(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Callable[[Path, str], Path]
) -> None:
    script(tmp_path / path / "nvcc-here", "#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    env = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    assert RUNNER.run(["nvcc-here"], timeout=20, env=env).returncode is None
    assert not RUNNER.run(["sh", "-c", "nvcc-here"], timeout=20, cwd=tmp_path, env=env).ok
    assert RUNNER.run([f"./{path}/nvcc-here"], timeout=20, env=env).ok, "a path is what was asked for"


def test_relative_paths_of_pip_are_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wheels").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_FIND_LINKS", "wheels https://host.example/wheels")
    done = RUNNER.run(python("import os; print(os.environ['PIP_FIND_LINKS'])"), timeout=20)
    assert done.stdout == f"{tmp_path / 'wheels'} https://host.example/wheels\n"


def test_a_child_of_python_does_not_stay_at_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONINSPECT", "1")
    monkeypatch.setenv("PYTHONSTARTUP", "start.py")
    done = RUNNER.run(
        python("import os; print(sorted({'PYTHONINSPECT', 'PYTHONSTARTUP'} & {*os.environ}))"), timeout=20
    )
    assert done.stdout == "[]\n"


@pytest.mark.skipif(sys.platform != "linux", reason="descendants are found in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_no_descendant_outlives_a_kill(number: signal.Signals, tmp_path: Path) -> None:
    told = tmp_path / "told"
    argv = [*python(KILLED), WITH_CHILD, str(told), "group"]
    process = subprocess.Popen(
        argv,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # these tests may run under nohup
    )
    pids = wait_for(told)
    os.killpg(process.pid, number)
    assert process.wait(timeout=20) == -number
    assert_gone(pids)
    (left,) = tmp_path.glob("splatfix-*")
    assert sweep([tmp_path]) == (left,)


def test_temporary_files_of_children_do_not_stay(tmp_path: Path) -> None:
    code = "import sys; from splatfix.core.runner import Runner; print(Runner().run(sys.argv[1:], timeout=9).stdout)"
    words = ["sh", "-c", "mkdir $TMPDIR/pip-unpack-xyz; echo $TMPDIR"]
    done = RUNNER.run(
        [*python(code), *words], timeout=20, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    folder = Path(done.stdout.strip())
    assert folder.parent == tmp_path and list(tmp_path.iterdir()) == []
    mine = RUNNER.run(["sh", "-c", "echo $TMPDIR"], timeout=9, env={**os.environ, "TMPDIR": "/mine"})
    assert mine.stdout == "/mine\n", "a caller's own folder stays"
