"""The smoke trainer as a child of the target environment: its files and its variables."""

import os
import shutil
from pathlib import Path

import splatfix
from splatfix.certify.inside import loaded
from splatfix.core.files import sha256_of
from splatfix.core.resources import KERNELS, SMOKE_TRAINER

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
