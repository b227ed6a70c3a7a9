"""kill -9 at every moment of an installation and of a revert: afterwards all of it is there, or all is as before."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.core.runner import Completed, Runner
from splatfix.install.dropins import make_dropin_wheel
from splatfix.install.environment import Environment, environment_lock, pip_install
from splatfix.install.journal import EntryStatus, Journal
from splatfix.install.undo import Undoer
from splatfix.knowledge.dropins import dropin_of
from tests.conftest import ONE_IN, Survived
from tests.tables import data

from .environments import LEAVES, Files, run_in, snapshot, write_extension
from .test_cli import fake_torch
from .test_legacy import develop

ROOT = Path(__file__).parents[2]
PIP_INSIDE = True

# Counts every change of a file and every start and end of a child, and kills itself at the n-th.
DRIVER: str = data(__file__)["texts"]["driver"]


def driven(target: Environment, at: int, what: str, *sources: Path, scratch: Path | None = None) -> Completed:
    argv = [sys.executable, "-c", DRIVER, str(at), target.python, what, *map(str, sources)]
    env = {**os.environ, "TMPDIR": str(scratch)} if scratch else None
    return Runner().run(argv, timeout=120.0, cwd=ROOT, env=env)


def settle(target: Environment) -> None:
    journal = Journal(target.state_folder)
    with environment_lock(target.state_folder):
        Undoer(target, journal).recover()
        assert journal.unfinished() == ()
        assert Undoer(target, journal).recover() == ()


@pytest.fixture(params=["drop-in", "develop"])
def prepared(environment: Environment, tmp_path: Path, request: pytest.FixtureRequest) -> Environment:
    """An environment with an older drop-in or a development install, which the installation will replace."""
    fake_torch(environment, "2.11.0+cpu", None)
    if request.param == "develop":
        for name in ("simple-knn", "fused-ssim"):
            develop(environment, tmp_path / name, name)
        return environment
    old = make_dropin_wheel(dropin_of("fused-ssim"), "0+older", tmp_path / "wheels")
    pip_install(environment, tmp_path / "pip.log", old)
    return environment


@pytest.mark.slow
def test_install_killed_everywhere(prepared: Environment, survived: Survived) -> None:
    survived("kill -9 in install", walk(prepared, "install"))


@pytest.mark.slow
def test_revert_killed_everywhere(prepared: Environment, survived: Survived) -> None:
    before = snapshot(prepared)
    assert driven(prepared, 0, "install").ok
    survived("kill -9 in revert", walk(prepared, "revert", goal=before))


@pytest.mark.slow
def test_two_builds_killed_everywhere(environment: Environment, tmp_path: Path, survived: Survived) -> None:
    """Killed in the middle they leave scratch folders, which later runs remove."""
    scratch, left = tmp_path / "scratch", list[Path]()
    scratch.mkdir()
    sources = [write_extension(tmp_path / name, name=name, before=LEAVES) for name in ("one", "two")]
    how = {"scratch": scratch, "look": lambda: left.extend(scratch.glob("splatfix-*"))}
    kills = walk(environment, "build", *sources, **how)
    assert kills > 30 // ONE_IN, "the kills did not come"
    survived("kill -9 in a build", kills)
    assert run_in(environment, "import one, two; print(one.answer(), two.answer())") == "42 42"
    assert left
    assert driven(environment, 0, "build", *sources, scratch=scratch).ok
    assert list(scratch.glob("splatfix-*")) == []


def walk(
    target: Environment,
    what: str,
    *sources: Path,
    scratch: Path | None = None,
    goal: Files | None = None,
    look: Callable[[], None] = lambda: None,
) -> int:
    """Kill at the first moment, the second, and so on, until a run gets through; how many kills that were."""
    before = snapshot(target)
    finished = EntryStatus.REVERTED if what == "revert" else EntryStatus.DONE
    for at in range(1, 300, ONE_IN):
        done = driven(target, at, what, *sources, scratch=scratch)
        settle(target)
        look()
        now = snapshot(target)
        if done.ok:
            assert at > 15, "the kills did not come"
            assert now != before and (goal is None or now == goal)
            return at // ONE_IN
        assert done.returncode == -signal.SIGKILL, done.stderr
        if now == before:
            continue
        # killed too late to matter: then it must be complete, and the journal must say so
        assert Journal(target.state_folder).entries()[-1].status is finished
        assert goal is None or now == goal
        if what == "revert":
            assert driven(target, 0, "install").ok
            before = snapshot(target)
        else:
            assert driven(target, 0, "revert").ok
            assert snapshot(target) == before
    raise AssertionError("no run got through")
