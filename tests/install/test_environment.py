import errno
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from splatfix.certify import report_lock
from splatfix.install.environment import environment_lock, open_environment
from tests.plan.machines import refused
from tests.tables import data

HOLD = data(__file__)["texts"]["hold"]

FORKS = data(__file__)["texts"]["forks"]


def test_lock_refuses_others_until_its_holder_dies(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        error = refused(environment_lock(tmp_path).__enter__)
        assert error.code == "environment-busy" and str(holder.pid) in error.what
    finally:
        holder.kill()
        holder.wait()
    with environment_lock(tmp_path):
        assert (tmp_path / "lock").is_file()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only a fork hands an open file on")
def test_the_dead_do_not_hold_it_for_long(tmp_path: Path) -> None:
    """A process killed while it starts a child: the child has the lock until it is the program it was started for."""
    root = Path(__file__).parents[2]
    go = tmp_path / "go"
    argv = [sys.executable, "-c", FORKS, str(tmp_path), str(go)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=root) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "forked\n"
        holder.wait()
        assert refused(environment_lock(tmp_path).__enter__).code == "environment-busy"
        go.touch()
        with environment_lock(tmp_path):
            pass


@pytest.mark.parametrize(
    "said", ["[1]", "3", "{}", '{"prefix": 3}', "null", "[" * 9999, '{"prefix": "\\u0000"}']
)
def test_an_interpreter_that_answers_nonsense(said: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    python.chmod(0o755)
    assert refused(open_environment, str(python)).code == "interpreter-unusable"


@pytest.mark.skipif(os.name != "posix", reason="Windows has its locks on every file system")
def test_it_is_had_on_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    with report_lock(tmp_path / "report") as notes:
        assert "without locks" in notes[0]
    with environment_lock(tmp_path) as notes:
        assert "without locks" in notes[0]
        error = refused(environment_lock(tmp_path).__enter__)
    assert error.code == "environment-busy" and str(os.getpid()) in error.what
