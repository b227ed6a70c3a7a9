"""Which Python interpreter a person means: by its path, its environment's folder, or the environment that is activated."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.isolation import find_program
from splatfix.core.step import say

_IN_ENVIRONMENT = ("bin/python", "Scripts/python.exe", "python.exe")
# for who names the folder of programs itself
_IN_PROGRAMS = ("python", "python3", "python.exe")
_PYTHON = re.compile(r"(python|pypy)[\d.]*[tdw]*(\.exe)?", re.IGNORECASE)


def resolve_python(given: str | None) -> str:
    """The interpreter a person means: a path to one, a venv or conda folder, or None for the activated environment.

    splatfix may live anywhere (pipx puts it into an environment of its own), so what VIRTUAL_ENV or CONDA_PREFIX names
    comes before the interpreter that runs splatfix.

    Raises:
        SplatfixError: ``no-interpreter`` (exit code 2) when there is none.
    """
    if given is None:
        return _activated() or sys.executable
    try:
        return _interpreter_at(given)
    except OSError as error:
        raise usage_error(
            "no-interpreter",
            f"{given} cannot be looked at: {error.strerror or error}.",
            say("Check its permissions."),
        ) from error


def refuse_other_program(python: str, why: str) -> None:
    """Of what did not answer as a Python: do nothing when it is one all the same, and then it is broken.

    Raises:
        SplatfixError: ``no-interpreter`` (exit code 2) when it is some other program.
    """
    if not _is_python(Path(python)):
        raise _no_python(Path(python), why)


def _activated() -> str | None:
    """The interpreter of the environment that is activated in this shell; None where none is."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = os.environ.get(variable, "")
        if variable == "CONDA_PREFIX" and os.environ.get("CONDA_DEFAULT_ENV") == "base":
            continue  # many shells activate it by themselves; nobody asked for it
        for path in (Path(folder, name) for name in _IN_ENVIRONMENT if folder):
            if path.exists():
                return str(path.absolute())
    return None


def _interpreter_at(given: str) -> str:
    path = Path(given).expanduser() if given else Path("(empty)")
    if path.is_dir():
        inside = _IN_PROGRAMS if path.absolute().name.lower() in ("bin", "scripts") else ()
        for name in (*_IN_ENVIRONMENT, *inside):
            if (path / name).is_file():
                return str((path / name).absolute())
        raise usage_error(
            "no-interpreter",
            f"The folder {given} holds no Python interpreter.",
            say("Give the interpreter's path, e.g. --python path/to/venv/bin/python."),
        )
    if path.is_file():
        if not os.access(path, os.X_OK) and not _is_python(path):
            raise _no_python(path, "it is a file that cannot be run")
        return str(path.absolute())  # links kept: a venv is known by its link
    found = find_program(given)
    if found and os.access(found, os.X_OK):
        return found
    raise usage_error(
        "no-interpreter",
        f"There is no Python interpreter at {given}.",
        say("Give the path of the interpreter, or of the folder of the venv or conda environment."),
    )


def _is_python(path: Path) -> bool:
    """By its name, or that of what it links to."""
    return any(_PYTHON.fullmatch(name) for name in (path.name, Path(os.path.realpath(path)).name))


def _no_python(path: Path, why: str) -> SplatfixError:
    beside = next((path.parent / name for name in _IN_PROGRAMS if (path.parent / name).is_file()), None)
    advice = "Give the path of the interpreter, or of the folder of the venv or conda environment."
    if beside and path.name.lower().startswith("activate"):
        advice = f"It activates an environment in a shell. Name the interpreter beside it: --python {beside}"
    return usage_error("no-interpreter", f"{path} is no Python interpreter: {why.rstrip('.')}.", say(advice))
