"""Which Python interpreter a person means: by its path, its environment's folder, or the environment that is activated."""

import os
import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from msgspec import Struct

from splatfix.core.errors import SplatfixError
from splatfix.core.isolation import find_program
from splatfix.core.limits import MOST_PROJECT_INDEX
from splatfix.core.reading import read_bytes

_IN_ENVIRONMENT = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
_PYTHON = re.compile(r"(python|pypy)[\d.]*[tdw]*(\.exe)?", re.IGNORECASE)


class EnvironmentChoice(Struct, frozen=True):
    """The target environment: its interpreter ("" where none can be meant), and why it is the one."""

    python: str
    why: str
    activated: bool = False
    """It is the one of this shell, so that nobody needs to be told."""

    def interpreter(self) -> str:
        """The interpreter, for what cannot go on without one.

        Raises:
            SplatfixError: ``no-environment`` (exit code 2).
        """
        if not self.python:
            raise SplatfixError.of("facts.no-environment", why=self.why.capitalize())
        return self.python


def choose_python(given: str | None) -> EnvironmentChoice:
    """The interpreter a person means: a path to one, a venv or conda folder; with None the activated environment, the one
    in the current folder (or above it, up to the project's), and the one that splatfix itself runs in where it has torch.

    splatfix may live anywhere (pipx and uv put it into an environment of its own): that one is never judged, or changed,
    without a word.

    Raises:
        SplatfixError: ``no-interpreter`` (exit code 2) when nothing is where ``given`` says.
    """
    if given is None:
        return _activated() or _in_project(Path.cwd()) or _own()
    try:
        return EnvironmentChoice(_interpreter_at(given), "named with --python")
    except OSError as error:
        raise SplatfixError.of(
            "facts.unreadable-interpreter", given=given, reason=error.strerror or error
        ) from error


def refuse_other_program(python: str, reason: str) -> None:
    """Of what did not answer as a Python: do nothing when it is one all the same, and then it is broken.

    Raises:
        SplatfixError: ``no-interpreter`` (exit code 2) when it is some other program.
    """
    if not _is_python(Path(python)):
        raise SplatfixError.of("facts.no-python", path=python, reason=reason.rstrip("."))


def _activated() -> EnvironmentChoice | None:
    """The environment that is activated in this shell; None where none is."""
    # many shells activate conda's base by themselves; nobody asked for it
    is_base = os.environ.get("CONDA_DEFAULT_ENV") == "base"
    for variable in ("VIRTUAL_ENV",) if is_base else ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = os.environ.get(variable, "")
        python = _python_in(Path(folder)) if folder else None
        if python:
            return EnvironmentChoice(python, f"activated ({variable})", activated=True)
    return None


# Names that venv's, uv's, Poetry's and pixi's projects give their environment.
_OF_PROJECTS = (".venv", "venv", "env", ".pixi/envs/default")
_PROJECT_FILES = (".git", "pyproject.toml", "pixi.toml")


def _in_project(folder: Path) -> EnvironmentChoice | None:
    """The environment of the project that ``folder`` is in, made here: one that git tracks came with a stranger's checkout,
    and starting its Python would run their code."""
    named = os.environ.get("UV_PROJECT_ENVIRONMENT", "")
    for project in (folder, *folder.parents):
        for name in filter(None, (named, *_OF_PROJECTS)):
            python = _python_in(project / name)
            if python and _made_here(project, project / name):
                return EnvironmentChoice(python, f"found in {project}")
        if any((project / name).exists() for name in _PROJECT_FILES):
            return None
    return None


def _made_here(project: Path, environment: Path) -> bool:
    mark = "pyvenv.cfg" if (environment / "pyvenv.cfg").is_file() else "conda-meta"
    try:
        is_ours = os.name != "posix" or environment.stat().st_uid == os.getuid()
        if not is_ours or not (environment / mark).exists():
            return False
    except OSError:
        return False
    index = read_bytes(project / ".git" / "index", MOST_PROJECT_INDEX)
    # an index that cannot be read may track it
    return index is None or (isinstance(index, bytes) and mark.encode() not in index)


def _own() -> EnvironmentChoice:
    none = "none is named with --python, activated, or in this folder"
    here = Path.cwd()
    if PathFinder.find_spec("torch", [folder for folder in sys.path if folder and Path(folder) != here]):
        return EnvironmentChoice(sys.executable, f"splatfix's own: {none}")
    return EnvironmentChoice("", f"{none}; splatfix's own has no torch")


def _python_in(folder: Path) -> str | None:
    for name in _IN_ENVIRONMENT:
        if (folder / name).is_file():
            return str((folder / name).absolute())  # links kept: a venv is known by its link
    return None


def _interpreter_at(given: str) -> str:
    path = Path(given).expanduser() if given else Path("(empty)")
    if path.is_dir():
        # who names the folder of programs itself means the environment above it
        if path.absolute().name.lower() in ("bin", "scripts"):
            path = path.absolute().parent
        if python := _python_in(path):
            return python
        raise SplatfixError.of("facts.no-interpreter-in-folder", given=given)
    if path.is_file():
        if not os.access(path, os.X_OK) and not _is_python(path):
            raise SplatfixError.of("facts.no-python", path=path, reason="it is a file that cannot be run")
        return str(path.absolute())  # links kept: a venv is known by its link
    program = find_program(given)
    if program and os.access(program, os.X_OK):
        return program
    raise SplatfixError.of("facts.no-interpreter", given=given)


def _is_python(path: Path) -> bool:
    """By its name, or that of what it links to."""
    return any(_PYTHON.fullmatch(name) for name in (path.name, Path(os.path.realpath(path)).name))
