"""``install --resume``: a run that did not get through is done again, with what was built found in the wheel cache."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from splatfix.core.runner import ProcessRunner
from splatfix.install import Journal, Status
from splatfix.install.environment import Environment

from .environments import run_in, write_extension
from .test_cli import splatfix

ROOT = Path(__file__).parents[2]

# Kills itself when pip is about to install, with everything built and proven.
DRIVER = """
import os, signal, sys
from splatfix.core.runner import ProcessRunner
real = ProcessRunner.run
def run(self, argv, **options):
    if "--force-reinstall" in argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, argv, **options)
ProcessRunner.run = run
from splatfix.cli import main
sys.argv = ["splatfix", "install", ".", "--python", sys.argv[1]]
main()
"""


@pytest.mark.usefixtures("fresh_wheels")
def test_resumed_after_a_kill(
    environment: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_extension(tmp_path / "source")
    done = ProcessRunner().run(
        [sys.executable, "-c", DRIVER, environment.python],
        timeout=120.0,
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    dead = Journal(environment.state_folder).entries()[-1]
    assert dead.status is Status.RUNNING

    assert splatfix("install", "--resume", "--python", environment.python, "--json") == 0
    outcome = json.loads(capsys.readouterr().out)["outcome"]
    assert outcome["recovered"] == [dead.id]
    assert run_in(environment, "import tiny_probe; print(tiny_probe.answer())") == "42"
    log = Path(outcome["log"]) / "build-tiny_probe.log"
    assert not log.exists(), "it was compiled again although the wheel was there"

    assert splatfix("install", "--resume", "--python", environment.python) == 2
    assert "nothing-to-resume" in capsys.readouterr().err


def test_nothing_to_resume_in_a_fresh_environment(
    environment: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert splatfix("install", "--resume", "--python", environment.python) == 2
    assert "there was none" in capsys.readouterr().err
    assert splatfix("install", "x", "--resume", "--python", environment.python) == 2
    assert "resume-takes-no-source" in capsys.readouterr().err


def test_resumed_after_a_failure_that_was_repaired(environment: Environment, tmp_path: Path) -> None:
    source = write_extension(tmp_path / "source", extra="int broken(;")
    assert splatfix("install", str(source), "--python", environment.python) == 1
    write_extension(tmp_path / "whole", answer=7)
    (source / "probe.c").write_text((tmp_path / "whole" / "probe.c").read_text())
    assert splatfix("install", "--resume", "--python", environment.python) == 0
    assert run_in(environment, "import tiny_probe; print(tiny_probe.answer())") == "7"
