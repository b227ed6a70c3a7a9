"""The target environment: its folders as its own interpreter names them, its lock, its child processes, and its pip."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Runner
from splatfix.core.step import run, say
from splatfix.facts import refuse_other_program

_ASK_TIMEOUT = 30.0
_PIP_TIMEOUT = 900.0
_ORPHAN_TIMEOUT = 120.0
_DEAD_HOLDER_TIMEOUT = 5.0
"""Seconds a dead process may keep its lock."""

# pip's own rule for headers: in a virtual environment they go to include/site, elsewhere where Python's own are
_ASK_FOLDERS = """
import json, os, sys, sysconfig
paths = sysconfig.get_paths()
if sys.prefix != getattr(sys, "base_prefix", sys.prefix):
    paths["include"] = os.path.join(sys.prefix, "include", "site", "python%d.%d" % sys.version_info[:2])
print(json.dumps([sys.prefix, paths]))
"""

# pip holds a lock of its own: when splatfix is killed, its pip lives on, and a rollback must wait for it.
_LOCKED_PIP = """
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


@dataclass(frozen=True)
class Environment:
    """One environment by its interpreter, with the folders pip installs into."""

    python: str
    prefix: Path
    purelib: Path
    platlib: Path
    scripts: Path
    data: Path
    headers: Path

    @property
    def state_folder(self) -> Path:
        """Where splatfix keeps the journal and locks of this environment."""
        return self.prefix / ".splatfix"

    def splatfix(self, *words: str) -> tuple[str, ...]:
        """The argv of a splatfix command for this environment."""
        return ("splatfix", *words, "--python", self.python)

    @property
    def sites(self) -> tuple[Path, ...]:
        """purelib and platlib, once when they are the same folder (lib64 is often a link to lib)."""
        same = self.purelib.resolve() == self.platlib.resolve()
        return (self.purelib,) if same else (self.purelib, self.platlib)

    def require_writable(self) -> None:
        """Raise ``cannot-write-environment`` unless the folders can be changed."""
        for folder in (*self.sites, self.prefix):
            if folder.is_dir() and not os.access(folder, os.W_OK):
                raise SplatfixError(
                    "cannot-write-environment",
                    f"{folder} is not writable.",
                    meaning="Nothing was changed.",
                    todo=(
                        run("python3", "-m", "venv", "my-env", text="Use an environment of your own"),
                        say("Then name it with --python my-env."),
                    ),
                )


def open_environment(python: str, runner: Runner) -> Environment:
    """Ask the interpreter for its folders.

    Raises:
        SplatfixError: ``interpreter-unusable``; ``no-interpreter`` (exit 2) for some other program.
    """
    done = runner.run([python, "-c", _ASK_FOLDERS], timeout=_ASK_TIMEOUT, env=child_environment())
    try:
        prefix, paths = json.loads(done.stdout.strip().splitlines()[-1]) if done.ok else (None, {})
    except (ValueError, IndexError):
        prefix, paths = None, {}
    if prefix is None:
        refuse_other_program(python, done.why() or "it does not answer as one")
        raise SplatfixError(
            "interpreter-unusable",
            f"The Python {python} does not answer: {done.why() or done.stdout.strip()[:200]}.",
            meaning="Nothing was changed.",
            todo=(say("Give another interpreter with --python."),),
        )
    folders = {name: Path(paths[name]) for name in ("purelib", "platlib", "scripts", "data")}
    return Environment(python, Path(prefix), **folders, headers=Path(paths["include"]))


def child_environment(
    variables: Mapping[str, str] | None = None,
    unset: Iterable[str] = (),
    path_first: Iterable[str] = (),
) -> dict[str, str]:
    """The variables of a child of the target interpreter.

    pip's settings are left out, by variable and by file, because one of them (``target``, ``user``, ``prefix``) could
    send an installation elsewhere; so are PYTHONPATH and its kin, which could show another environment's packages.
    No bytecode is written that pip does not know of. A pip that a setup.py starts by itself reaches no index: it would
    change packages that are not in the plan.
    """
    dropped = {"PYTHONPATH", "PYTHONHOME", *unset}
    kept = {k: v for k, v in os.environ.items() if k not in dropped and not k.startswith("PIP_")}
    kept |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    kept |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    kept |= variables or {}
    kept["PATH"] = os.pathsep.join([*path_first, kept.get("PATH", os.defpath)])
    return kept


@contextmanager
def writable_log(log: Path) -> Iterator[None]:
    """While a child process writes to ``log``.

    Raises:
        SplatfixError: ``cannot-write`` when the disk is full or the folder is gone; the child was ended.
    """
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise SplatfixError(
            "cannot-write",
            f"The log {log} cannot be written: {error.strerror or error}.",
            meaning="The process that wrote it was stopped; the environment is unchanged.",
            todo=(run("splatfix", "install", "--resume", text="Make room on that disk, then"),),
        ) from error


def pip_install(wheel: Path, environment: Environment, runner: Runner, log: Path) -> None:
    """Install one wheel file with the environment's pip, and nothing else: no index, no dependencies.

    Raises:
        SplatfixError: ``pip-failed``, ``cannot-write``; the caller must undo what pip has changed until then.
    """
    environment.state_folder.mkdir(parents=True, exist_ok=True)
    argv = [environment.python, "-c", _LOCKED_PIP, str(_pip_lock(environment))]
    argv += ["--no-input", "--disable-pip-version-check", "install", "--no-deps", "--no-index"]
    argv += ["--force-reinstall", "--no-warn-script-location", str(wheel)]
    with writable_log(log):
        done = runner.run(argv, timeout=_PIP_TIMEOUT, env=child_environment(), log=log)
    if not done.ok:
        said = [line for line in done.stdout.splitlines() if line.startswith("ERROR")] or [done.why()]
        raise SplatfixError(
            "pip-failed",
            f"pip could not install {wheel.name}: {said[0]}",
            meaning="The environment is as it was before.",
            todo=(say(f"Full log: {log}"),),
        )


def wait_for_pip(environment: Environment) -> None:
    """Return when no pip of an interrupted splatfix runs in the environment any more.

    Raises:
        SplatfixError: ``environment-busy`` after two minutes.
    """
    try:
        handle = os.open(_pip_lock(environment), os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError:
        return
    try:
        deadline = time.monotonic() + _ORPHAN_TIMEOUT
        while not try_lock(handle):
            if time.monotonic() > deadline:
                raise SplatfixError(
                    "environment-busy",
                    f"The pip of an interrupted installation is still running in {environment.prefix}.",
                    meaning="Nothing can be restored before it ends.",
                    todo=(say("Wait until it has finished, then run this again."),),
                )
            time.sleep(0.05)
    finally:
        os.close(handle)


def _pip_lock(environment: Environment) -> Path:
    return environment.state_folder / "pip.lock"


@contextmanager
def environment_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of the environment whose ``.splatfix`` folder this is; does not wait for a living holder.

    The operating system holds the lock, so that it vanishes with the process.

    Raises:
        SplatfixError: ``environment-busy`` when another splatfix works there, ``cannot-write-environment``.
    """
    path = folder / "lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise SplatfixError(
            "cannot-write-environment",
            f"{path} cannot be written: {error.strerror or error}.",
            meaning="Nothing was changed.",
            todo=(say("Use an environment you may write to."),),
        ) from error
    try:
        if not _lock_unless_alive(handle):
            holder = _holder(handle)
            raise SplatfixError(
                "environment-busy",
                f"Another splatfix{f' (process {holder})' if holder else ''} is working in {folder.parent}.",
                meaning="Nothing was changed: two installations at once would corrupt each other.",
                todo=(say("Wait until it has finished, then run this again."),),
            )
        # the holder's number is only for the next one's error message; on a full disk it is left out
        with suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0) if hasattr(os, "pwrite") else None
        yield
    finally:
        os.close(handle)  # closing releases the lock


def _lock_unless_alive(handle: int) -> bool:
    """Take the lock; False when a living process has it.

    A process killed while it was starting a child leaves the lock with that child until the child has become the
    program it was started for: a moment, and longer on a busy machine.
    """
    deadline = time.monotonic() + _DEAD_HOLDER_TIMEOUT
    while not try_lock(handle):
        if time.monotonic() > deadline or not _is_dead(_holder(handle)):
            return False
        time.sleep(0.02)
    return True


def _holder(handle: int) -> str:
    """Number of the process that took the lock last; "" where it could not write it."""
    os.lseek(handle, 0, os.SEEK_SET)
    return os.read(handle, 64).decode("ascii", "replace").strip()


def _is_dead(pid: str) -> bool:
    if os.name != "posix" or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def try_lock(handle: int) -> bool:
    """Take the operating system's lock on an open file; False at once if somebody else has it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
