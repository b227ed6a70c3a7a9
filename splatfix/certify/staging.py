"""What processes of the target environment find, files and variables: the smoke trainer, or the observer of a stack's own."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import splatfix
from splatfix.certify.inside import loaded
from splatfix.core.files import make_folder
from splatfix.core.resources import KERNELS, SMOKE_TRAINER

_PACKAGE = f'''"""The kernels of splatfix, staged for the target environment."""

from splatfix import loaded

__version__ = "{splatfix.__version__}"
loaded.at_exit()
'''
_INSIDE = Path(__file__).with_name("inside")
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


def child_variables(path: Path) -> dict[str, str]:
    """This process's environment variables, with only the staged folder on PYTHONPATH."""
    variables = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    variables.update(PYTHONPATH=str(path), PYTHONUNBUFFERED="1")
    # spinning OpenMP threads are slow where cores are shared
    variables.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return variables


def stage_inside(folder: Path, settings: Mapping[str, Any], dropins: Path | None = None) -> dict[str, str]:
    """Put the observer into ``folder`` and return all variables of a stack's process, which loads it, and the drop-ins, first."""
    variables = child_variables(folder) | stage_observer(folder, settings, dropins)
    if settings["cpu"] and shutil.which("nvidia-smi") is None:
        # for trainers that choose the idlest GPU by its output, as Scaffold-GS does
        program = make_folder(folder / "bin") / "nvidia-smi"
        shutil.copyfile(_INSIDE / "nvidia-smi", program)
        program.chmod(0o755)
        variables["PATH"] = f"{program.parent}{os.pathsep}{variables.get('PATH', os.defpath)}"
    return {**variables, "WANDB_MODE": "disabled"}


def stage_observer(folder: Path, settings: Mapping[str, Any], dropins: Path | None = None) -> dict[str, str]:
    """Put the observer into a folder; return the variables with which Python loads it before any other code, and drop-ins before
    what is installed.

    Args:
        settings: what it is to do: ``out`` is the folder that it writes to, ``standins`` are those of compiled packages that it
            brings, and only this run writes to the folders of ``written``.
    """
    package = folder / "splatfix" / "certify"
    if not package.exists():
        shutil.copytree(_INSIDE, package / "inside", ignore=_NOT_CODE)
        for parent in (package, package.parent):
            (parent / "__init__.py").write_text('"""Staged by splatfix."""\n', encoding="utf-8")
        shutil.copyfile(_INSIDE / "observer.py", folder / "sitecustomize.py")
        for name in settings.get("standins", ()):
            shutil.copyfile(_INSIDE / "compiled" / f"{name}.py", folder / f"{name}.py")
        # of which the observer needs the record, and how memory and updates are measured
        shutil.copytree(SMOKE_TRAINER, folder / "smoke_trainer", ignore=_NOT_CODE)
    configuration = folder / "inside.json"
    complete = {"placeholders": (), "needed": (), "written": (), **settings}
    configuration.write_text(json.dumps(complete), encoding="utf-8")
    # what the user's own PYTHONPATH leads to belongs to the environment that the trainer runs in
    search_path = [str(folder), str(dropins or ""), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, search_path)),
        "SPLATFIX_INSIDE": str(configuration),
    }
