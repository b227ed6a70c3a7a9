"""The smoke trainer as a child of the target environment: its files, its variables, the scenes it finds, how it ended."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import splatfix
from splatfix.certify.criteria.running import sentence
from splatfix.certify.inside import loaded
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import sha256_of
from splatfix.core.resources import KERNELS, SMOKE_TRAINER
from splatfix.core.runner import Runner
from splatfix.core.scratch import temporary_folder
from splatfix.core.step import say

LISTING_TIMEOUT = 120.0

_PACKAGE = f'''"""The kernels of splatfix, staged for the target environment."""

from splatfix import loaded

__version__ = "{splatfix.__version__}"
loaded.at_exit()
'''
_NOT_CODE = shutil.ignore_patterns("__pycache__", "*.pyc")


def stage(folder: Path) -> Path:
    """Copy ``smoke_trainer`` and ``splatfix.kernels`` into ``folder``; returns the path for PYTHONPATH.

    A process that imports them there tells at its end what it loaded, where it is asked to.
    splatfix's own site-packages must not be on the target's path: its numpy or torch would shadow the target's.
    """
    shutil.copytree(SMOKE_TRAINER, folder / "smoke_trainer", ignore=_NOT_CODE)
    package = folder / "splatfix"
    shutil.copytree(KERNELS, package / "kernels", ignore=_NOT_CODE)
    shutil.copyfile(loaded.__file__, package / "loaded.py")
    (package / "__init__.py").write_text(_PACKAGE, encoding="utf-8")
    return folder


def source_digests(staged: Path) -> dict[str, str]:
    """Return the SHA-256 of every Python file below a folder by its name there, such as ``smoke_trainer/train.py``.

    Raises:
        OSError: a file cannot be read.
    """
    return {path.relative_to(staged).as_posix(): sha256_of(path) for path in sorted(staged.rglob("*.py"))}


def child_variables(path: Path) -> dict[str, str]:
    """This process's environment variables, with only the staged folder on PYTHONPATH."""
    variables = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    variables.update(PYTHONPATH=str(path), PYTHONUNBUFFERED="1")
    # spinning OpenMP threads are slow where cores are shared
    variables.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return variables


def list_scenes(folder: Path, python: str, runner: Runner | None = None) -> dict[str, Any]:
    """Return the ``scenes`` at or below a folder, and known ones that are ``skipped``, as ``smoke_trainer.data`` finds them; an
    error of that tool is raised as its own.

    Raises:
        SplatfixError: the tool's own error and exit code; ``environment-not-ready`` (exit code 3) where it did not run.
    """
    argv = [python, "-m", "smoke_trainer.data", str(folder), "--json"]
    with temporary_folder() as staged:
        variables = child_variables(stage(staged))
        done = (runner or Runner()).run(argv, timeout=LISTING_TIMEOUT, env=variables)
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SplatfixError.of("certify.environment-not-ready", python=python, reason=done.why()) from None
    if "error" in document:
        error = document["error"]
        raise SplatfixError(
            str(error["code"]),
            sentence(error["message"]),
            meaning=sentence(error["note"]),
            todo=(say(sentence(error["hint"])),) if error["hint"] else (),
            exit_code=Exit(document["exit_code"]),
        )
    return document
