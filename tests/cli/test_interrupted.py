"""How commands end that do not end well: Ctrl-C and SIGTERM, wrong words, a reader that has gone, a folder that is no more."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from splatfix.install.environment import Environment
from tests.cli.test_documents import check
from tests.conftest import Splatfix
from tests.install.environments import make_environment, write_extension
from tests.processes import assert_gone
from tests.tables import data

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")

Script = Callable[[Path, str], Path]
NOTHING = "Interrupted: there is no result, and nothing was changed.\n"


def interrupted(
    *words: str,
    when: Path,
    number: signal.Signals = signal.SIGINT,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """The command's end when the signal comes as soon as the file ``when`` is there."""
    argv, pipe = [sys.executable, "-m", "splatfix", *words], subprocess.PIPE
    variables = {**os.environ, **(env or {})}
    process = subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, cwd=cwd, env=variables)
    try:
        waiting_until = time.monotonic() + 120
        while not when.exists():
            assert process.poll() is None and time.monotonic() < waiting_until, process.communicate()
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Where a program that takes long says that it runs: its number."""
    return tmp_path / "runs"


@pytest.fixture
def endless(tmp_path: Path, mark: Path, script: Script) -> Callable[[str], Path]:
    """A program of that name, in a folder of its own, that says that it runs and then never ends."""

    text = f"#!/bin/sh\necho $$ > {mark}.new; mv {mark}.new {mark}\nexec sleep 600\n"
    return lambda name: script(tmp_path / "bin" / name, text)


@pytest.mark.parametrize(
    ("words", "told", "number"),
    [
        (["install", "--dry-run"], NOTHING, signal.SIGINT),
        (["revert"], NOTHING, signal.SIGTERM),
        (["certify", "--level", "2"], "Interrupted: nothing was certified.\n", signal.SIGINT),
    ],
)
def test_a_command_that_only_looks_says_that_nothing_changed(
    words: list[str],
    told: str,
    number: signal.Signals,
    endless: Callable[[str], Path],
    mark: Path,
    tmp_path: Path,
) -> None:
    python = endless("python")
    done = interrupted(*words, "--python", str(python), when=mark, number=number)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", told)
    assert_gone(mark.read_text())


def test_with_json_an_interrupted_command_still_prints_one_document(
    endless: Callable[[str], Path], mark: Path, tmp_path: Path
) -> None:
    words = ("certify", "--level", "1", "--json", "--python", str(endless("python")))
    done = interrupted(*words, when=mark, number=signal.SIGTERM, cwd=tmp_path)
    made = check(json.loads(done.stdout))
    assert (done.returncode, made["command"], made["exit_code"]) == (130, "certify", 130), done.stderr
    assert (made["error"]["code"], done.stderr) == ("interrupted", "")


def test_children_of_other_threads_are_ended_without_waiting(
    endless: Callable[[str], Path], mark: Path
) -> None:
    """Compilers and toolkits are asked side by side."""
    path = f"{endless('nvcc').parent}{os.pathsep}{os.environ['PATH']}"
    started = time.monotonic()
    done = interrupted("diagnose", when=mark, number=signal.SIGTERM, env={"PATH": path})
    assert (done.returncode, done.stderr) == (130, NOTHING)
    assert time.monotonic() - started < 60
    assert_gone(mark.read_text())


CLEARING: str = data(__file__)["texts"]["clearing"]


def test_a_second_ctrl_c_does_not_end_the_clearing_away(tmp_path: Path) -> None:
    """It comes with each file that is removed."""
    done = subprocess.run([sys.executable, "-c", CLEARING, str(tmp_path)], capture_output=True, text=True)
    assert done.stderr.endswith("KeyboardInterrupt\n") and list(tmp_path.iterdir()) == [], done.stderr


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return make_environment(tmp_path / "env")


@pytest.mark.parametrize("moment", [pytest.param("build", marks=pytest.mark.slow), "import"])
def test_an_installation_says_how_it_left_the_environment(
    moment: str, environment: Environment, mark: Path, tmp_path: Path, splatfix: Splatfix
) -> None:
    wait = f"open({str(mark)!r}, 'w').close(); __import__('time').sleep(600)"
    # a command of the build's own, which is not run where setup.py is only asked
    command = (
        f"from setuptools.command.build_py import build_py\nclass Waits(build_py):\n    def run(self): {wait}"
    )
    waiting: dict[str, dict[str, Any]] = {
        "build": {"before": command, "said": "cmdclass={'build_py': Waits}, "},
        "import": {"module": wait},
    }
    source = write_extension(tmp_path / "source", **waiting[moment])
    before = sorted(environment.purelib.iterdir())
    env = {"SPLATFIX_CACHE": str(tmp_path / "cache")}
    words = ("install", str(source), "--python", environment.python, "--yes")
    done = interrupted(*words, when=mark, env=env)
    states = {
        "build": f"nothing was changed in {environment.prefix}",
        "import": f"{environment.prefix} was restored to its previous state",
    }
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-2:] == [
        f"Interrupted: {states[moment]}. Start again with",
        f"  $ splatfix install --resume --python {environment.python}",
    ]
    assert sorted(environment.purelib.iterdir()) == before
    shutil.rmtree(source)
    again = splatfix("install", "--resume", "--python", environment.python, env={**os.environ, **env})
    assert "(nothing-to-resume)" not in again.stderr and str(source) in again.stderr


@pytest.mark.parametrize(
    ("typed", "told", "code"),
    [(b"\x03", "Interrupted: nothing was changed.", 130), (b"n\n", "Nothing was changed.", 1)],
)
def test_who_does_not_go_ahead_is_told_that_nothing_changed(
    typed: bytes, told: str, code: int, environment: Environment, tmp_path: Path
) -> None:
    source = write_extension(tmp_path / "source")
    ours, theirs = os.openpty()
    argv = [sys.executable, "-m", "splatfix", "install", str(source), "--python", environment.python]
    # a session of its own, whose terminal this is: there Ctrl-C is a signal
    starts = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    argv = [sys.executable, "-c", starts, *argv]
    process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    shown = b""
    try:
        while b"Go ahead?" not in shown:
            shown += os.read(ours, 4096)
        # typed while readline sets up, Ctrl-C waits there for the next key
        for _ in range(120):
            os.write(ours, typed)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.5)
                break
        assert process.wait(timeout=60) == code
        while told.encode() not in shown:
            shown += os.read(ours, 4096)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert not (environment.prefix / ".splatfix").exists()


COMMAND = [sys.executable, "-m", "splatfix"]


@pytest.mark.parametrize("words", [["diagnose", "--list", "--json"], ["--help"]])
def test_a_reader_that_has_gone_is_no_failure(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as out:
        done = subprocess.run([*COMMAND, *words], stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["diagnose", "--list"], ["diagnose", "--list", "--json"]])
def test_an_output_that_is_full_is_told_on_the_other_stream(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "(os-error)" in done.stderr and "refused: No space left" in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_current_folder_that_is_no_more(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'cd "{gone}" && rmdir "{gone}" && exec "{sys.executable}" -m splatfix "$@"'
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}  # -m looks into the current folder, which is not there
    argv = ["sh", "-c", script, "sh", "diagnose", "--json"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "no-current-folder")
