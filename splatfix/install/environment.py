"""The target environment: its folders as its own interpreter names them, its lock, its children, and what installs there."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from splatfix.core.codec import json_object
from splatfix.core.errors import SplatfixError
from splatfix.core.lock import Lock, Locked
from splatfix.core.runner import Completed, Runner
from splatfix.core.step import say
from splatfix.facts import System, find_installer, refuse_other_program
from splatfix.model import Installer

_ASK_TIMEOUT = 30.0
_PIP_TIMEOUT = 900.0
_ORPHAN_TIMEOUT = 120.0

# Asked of the interpreter itself: Debian and conda put things elsewhere than its path would suggest.
# pip's own rule for headers: in a virtual environment they go to include/site, elsewhere where Python's own are
_ASK = """
import importlib.util, json, os, site, sys, sysconfig
paths = sysconfig.get_paths()
if sys.prefix != getattr(sys, "base_prefix", sys.prefix):
    paths["include"] = os.path.join(sys.prefix, "include", "site", "python%d.%d" % sys.version_info[:2])
    site.ENABLE_USER_SITE = False
answer = {name: paths[name] for name in ("purelib", "platlib", "scripts", "data")}
answer.update(prefix=sys.prefix, headers=paths["include"])
answer["user_site"] = site.getusersitepackages() if site.ENABLE_USER_SITE else None
answer["pip"] = importlib.util.find_spec("pip") is not None
answer["version"] = "%d.%d" % sys.version_info[:2]
answer["virtual"] = sys.prefix != getattr(sys, "base_prefix", sys.prefix)
print(json.dumps(answer))
"""
_FOLDERS = ("prefix", "purelib", "platlib", "scripts", "data", "headers")
_PIP_LOCK = "pip.lock"
# The installer holds it: when splatfix is killed, it may live on, and a rollback must wait for it.
_LOCKED = """
import os, subprocess, sys
if os.name == "nt":
    sys.exit(subprocess.call(sys.argv[2:]))
import fcntl
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
try:
    fcntl.flock(handle, fcntl.LOCK_EX)
except OSError:
    pass  # a file system without locks
os.set_inheritable(handle, True)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Environment(Struct, frozen=True):
    """One environment by its interpreter, with the folders pip installs into."""

    python: str
    prefix: Path
    purelib: Path
    platlib: Path
    scripts: Path
    data: Path
    headers: Path
    user_site: Path | None = None
    """The user's own site-packages, where this Python looks there too; pip removes from it what it installs elsewhere."""
    installer: Installer = field(default_factory=Installer)
    virtual: bool = True
    """A virtual environment, in which pip removes nothing outside of the prefix."""
    version: str = ""
    """Of its Python, as pip adds it to names of programs: ``3.11``."""
    runner: Runner = field(default_factory=Runner)
    """What runs its children."""

    @property
    def state_folder(self) -> Path:
        """Where splatfix keeps the journal and locks of this environment."""
        return self.prefix / ".splatfix"

    @property
    def sites(self) -> tuple[Path, ...]:
        """purelib and platlib, once when they are the same folder (lib64 is often a link to lib), and the user's."""
        sites = [self.purelib]
        if self.purelib.resolve() != self.platlib.resolve():
            sites.append(self.platlib)
        if self.user_site:
            sites.append(self.user_site)
        return tuple(sites)

    def run(self, *arguments: str, timeout: float, **options: Any) -> Completed:
        """Run its Python with these arguments, and the variables of :func:`child_environment`."""
        return self.runner.run([self.python, *arguments], timeout=timeout, env=child_environment(), **options)

    def require_writable(self) -> None:
        """Raise ``cannot-write-environment`` unless the folders can be changed."""
        for folder in (*self.sites, self.prefix):
            if folder.is_dir() and not os.access(folder, os.W_OK):
                raise SplatfixError.of("install.unwritable-folder", folder=folder)


def open_environment(python: str, runner: Runner | None = None) -> Environment:
    """Ask the interpreter for its folders, and find what installs there; ``no-interpreter`` is raised for another program."""
    runner = runner or Runner()
    completed = runner.run([python, "-c", _ASK], timeout=_ASK_TIMEOUT, env=child_environment())
    answer = json_object(completed.stdout.strip().rpartition("\n")[2]) if completed.ok else {}
    if not all(isinstance(answer.get(name), str) for name in _FOLDERS):
        why = completed.why()
        refuse_other_program(python, why or "it does not answer as one")
        reason = why or completed.stdout.strip()[:200]
        raise SplatfixError.of("install.interpreter-unusable", python=python, reason=reason)
    folders = {name: Path(answer[name]) for name in (*_FOLDERS, "user_site") if answer[name]}
    installer = find_installer(System(runner), python, pip_inside=answer["pip"]).value or Installer()
    return Environment(
        python,
        **folders,
        installer=installer,
        virtual=answer["virtual"],
        version=answer["version"],
        runner=runner,
    )


def child_environment(
    variables: Mapping[str, str] | None = None,
    unset: Iterable[str] = (),
    path_first: Iterable[str] = (),
) -> dict[str, str]:
    """Return the variables of a child of the target interpreter.

    The settings of pip and uv are left out, by variable and by file, because one of them (``target``, ``user``, ``prefix``) could
    send an installation elsewhere; so are PYTHONPATH and its kin, which could show another environment's packages.
    No bytecode is written that pip does not know of. A pip that a setup.py starts by itself reaches no index: it would
    change packages that are not in the plan.
    """
    dropped = {"PYTHONPATH", "PYTHONHOME", *unset}
    dropped |= {name for name in os.environ if name.startswith(("PIP_", "UV_"))}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    kept |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "UV_NO_CONFIG": "1", "UV_OFFLINE": "1"}
    kept |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    kept |= variables or {}
    kept["PATH"] = os.pathsep.join([*path_first, kept.get("PATH", os.defpath)])
    return kept


@contextmanager
def writable_log(log: Path) -> Iterator[None]:
    """Raise ``cannot-write`` when a child that writes to ``log`` was ended, since the disk is full or the folder is gone."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise SplatfixError.of("install.unwritable-log", log=log, reason=error.strerror or error) from error


def pip_install(environment: Environment, log: Path, *wheels: Path) -> None:
    """Install wheel files by the environment's installer, and nothing else: no index, no dependencies.

    Where it fails the caller must undo what was changed until then.
    """
    installer, lock = environment.installer, environment.state_folder / _PIP_LOCK
    lock.parent.mkdir(parents=True, exist_ok=True)
    # forced: pip would leave alone what has the same version, and ours may differ in its targets only
    options = ("--no-deps", "--no-index", "--force-reinstall")
    if installer.kind == "uv":
        # files that are linked to uv's cache, or by links, would change with every environment that has them
        copied = ("--no-cache", "--link-mode", "copy")
        command = installer.command(environment.python, "install", *options, *copied)
    else:
        quiet = ("--no-input", "--disable-pip-version-check")
        pip = installer.pip(environment.python)
        command = (*pip, *quiet, "install", *options, "--no-warn-script-location")
    command = (*command, *map(str, wheels))
    with writable_log(log):
        completed = environment.run("-c", _LOCKED, str(lock), *command, timeout=_PIP_TIMEOUT, log=log)
    if not completed.ok:
        errors = re.findall("(?mi)^error.*", completed.stdout)
        names, reason = [path.name for path in wheels], [*errors, completed.why()][0]
        raise SplatfixError.of("install.pip-failed", kind=installer.kind, names=names, reason=reason, log=log)


def build_command(environment: Environment, source: Path, wheels: Path) -> tuple[str, ...]:
    """Return the argv that builds the wheel of a source folder into ``wheels``, with what the environment itself has."""
    installer = environment.installer
    if installer.kind == "uv":
        build = ("build", "--wheel", "--no-build-isolation", "--no-index", "--no-cache")
        folders = ("--python", environment.python, "--out-dir", str(wheels), str(source))
        return (installer.program, *build, *folders)
    options = ("--no-input", "--disable-pip-version-check", "wheel", "--verbose", "--no-build-isolation")
    no_more = ("--no-deps", "--no-index", "--no-clean")
    return (*installer.pip(environment.python), *options, *no_more, "--wheel-dir", str(wheels), str(source))


def wait_for_pip(environment: Environment) -> None:
    """Return when no pip of an interrupted splatfix runs there any more; raises ``environment-busy`` after two minutes."""
    path = environment.state_folder / _PIP_LOCK
    if path.exists():
        try:
            Lock(path, _ORPHAN_TIMEOUT).release()
        except Locked:
            raise SplatfixError.of("install.environment-busy", prefix=environment.prefix, path=path) from None


def cannot_restore(environment: Environment, folder: Path, error: OSError) -> SplatfixError:
    """Build the error for what the disk refuses to put back, with the command that goes on."""
    path, reason = error.filename or folder, error.strerror or error
    return SplatfixError.of("install.cannot-restore", python=environment.python, path=path, reason=reason)


@contextmanager
def environment_lock(folder: Path) -> Iterator[tuple[str, ...]]:
    """Hold the lock of the environment whose ``.splatfix`` folder this is; does not wait for a living holder. It gives notes.

    The operating system holds the lock, so that it vanishes with the process. While it is held nothing is written that is
    open to more people than the environment itself. Where another splatfix works there ``environment-busy`` is raised.
    """
    open_to = 0o777
    if folder.parent.is_dir():
        open_to = folder.parent.stat().st_mode
    before = os.umask(0o077)  # it can only be asked for by setting another
    os.umask(before | ~open_to & 0o077)
    path = folder / "lock"
    with ExitStack() as stack:
        stack.callback(os.umask, before)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held = Lock(path)
        except OSError as error:
            reason = error.strerror or error
            raise SplatfixError.of("install.unwritable-file", path=path, reason=reason) from error
        except Locked as locked:
            todo, problem = tuple(map(say, locked.todo)), locked.tell(folder.parent)
            raise SplatfixError.of("install.environment-locked", problem=problem, todo=todo) from None
        stack.callback(held.release)
        yield held.notes
