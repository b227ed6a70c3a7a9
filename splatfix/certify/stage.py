"""Puts the trainer and the kernels where the target environment's Python can import them, and nothing else of ours."""

from __future__ import annotations

import shutil
from pathlib import Path

import splatfix
from splatfix.core.resources import kernels_folder, smoke_trainer_folder

_NOT_CODE = shutil.ignore_patterns("__pycache__", "*.pyc")


def stage(folder: Path) -> Path:
    """Copy ``smoke_trainer`` and ``splatfix.kernels`` into ``folder`` and return the path for PYTHONPATH.

    splatfix's own site-packages must not appear on the target's path: its numpy or torch would shadow the patient's.
    """
    shutil.copytree(smoke_trainer_folder(), folder / "smoke_trainer", ignore=_NOT_CODE)
    package = folder / "splatfix"
    shutil.copytree(kernels_folder(), package / "kernels", ignore=_NOT_CODE)
    (package / "__init__.py").write_text(
        f'"""The kernels of splatfix, staged for the target environment."""\n\n__version__ = "{splatfix.__version__}"\n',
        encoding="utf-8",
    )
    return folder
