"""Installs one wheel file with the target environment's pip, and nothing else: no index, no dependencies."""

from __future__ import annotations

import os
import time
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Runner
from splatfix.core.step import say
from splatfix.install.kept_log import kept_log
from splatfix.install.lock import try_lock
from splatfix.install.target import Target, child_environment

_TIMEOUT = 900.0
_ORPHAN_PATIENCE = 120.0

# pip under a lock of its own: when splatfix is killed, its pip lives on, and whoever puts things back must wait for it.
_SCRIPT = """
import os, runpy, sys
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666)
try:
    import fcntl
    fcntl.flock(handle, fcntl.LOCK_EX)
except ImportError:
    import msvcrt
    msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
sys.argv = ["pip"] + sys.argv[2:]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def pip_install(wheel: Path, target: Target, runner: Runner, log: Path) -> None:
    """``pip install --no-deps --no-index --force-reinstall WHEEL`` in the target environment.

    Raises:
        SplatfixError: ``pip-failed``, ``cannot-write``; what pip has changed until then is for the caller to take back.
    """
    target.own_folder.mkdir(parents=True, exist_ok=True)
    argv = [
        target.python,
        "-c",
        _SCRIPT,
        str(_lock_file(target)),
        "--no-input",
        "--disable-pip-version-check",
        "install",
    ]
    argv += ["--no-deps", "--no-index", "--force-reinstall", "--no-warn-script-location", str(wheel)]
    with kept_log(log):
        done = runner.run(argv, timeout=_TIMEOUT, cwd=wheel.parent, env=child_environment(), log=log)
    if not done.ok:
        said = [line for line in done.stdout.splitlines() if line.startswith("ERROR")] or [done.why()]
        raise SplatfixError(
            "pip-failed",
            f"pip could not install {wheel.name}: {said[0]}",
            meaning="Everything is as it was before.",
            todo=(say(f"Full log: {log}"),),
        )


def wait_for_pip(target: Target, patience: float = _ORPHAN_PATIENCE) -> None:
    """Return when no pip of ours is at work in the environment any more.

    Raises:
        SplatfixError: ``environment-busy`` after ``patience`` seconds.
    """
    try:
        handle = os.open(_lock_file(target), os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError:
        return
    try:
        end = time.monotonic() + patience
        while not try_lock(handle):
            if time.monotonic() > end:
                raise SplatfixError(
                    "environment-busy",
                    f"The pip of an interrupted installation is still at work in {target.prefix}.",
                    meaning="Nothing can be put back before it has ended.",
                    todo=(say("Wait until it has finished, then run this again."),),
                )
            time.sleep(0.05)
    finally:
        os.close(handle)


def _lock_file(target: Target) -> Path:
    return target.own_folder / "pip.lock"
