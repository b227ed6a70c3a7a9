"""What processes of the target environment find, files and variables: our trainer, kernels, probes and the observer."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import splatfix
from splatfix.core.files import make_folder
from splatfix.core.resources import KERNELS, SMOKE_TRAINER

_PACKAGE = f'''"""What splatfix runs in the target environment, staged."""

from splatfix.certify.inside import loaded

__version__ = "{splatfix.__version__}"
loaded.at_exit()
'''
_HERE = Path(__file__).parent
_NOT_CODE = shutil.ignore_patterns("__pycache__", "*.pyc")


def stage(folder: Path) -> Path:
    """Copy what runs in a target environment into ``folder``; returns the path for PYTHONPATH.

    A process that imports them there tells at its end what it loaded, where it is asked to.
    splatfix's own site-packages must not be on the target's path: its numpy or torch would shadow the target's.
    """
    shutil.copytree(SMOKE_TRAINER, folder / "smoke_trainer", ignore=_NOT_CODE)
    package = folder / "splatfix"
    shutil.copytree(KERNELS, package / "kernels", ignore=_NOT_CODE)
    shutil.copytree(_HERE / "inside", package / "certify" / "inside", ignore=_NOT_CODE)
    for path in (*_HERE.glob("kernel_*.py"), _HERE / "stacks" / "compare_renders.py"):
        shutil.copy(path, package / "certify")
    (package / "certify" / "__init__.py").touch()
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
        shutil.copyfile(_HERE / "inside" / "nvidia-smi", program)
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
    if not (folder / "splatfix").exists():
        inside = stage(folder) / "splatfix" / "certify" / "inside"
        shutil.copyfile(inside / "observer.py", folder / "sitecustomize.py")
        for name in settings.get("standins", ()):
            shutil.copyfile(inside / "compiled" / f"{name}.py", folder / f"{name}.py")
    configuration = folder / "inside.json"
    complete = {"placeholders": (), "needed": (), "written": (), **settings}
    configuration.write_text(json.dumps(complete), encoding="utf-8")
    # what the user's own PYTHONPATH leads to belongs to the environment that the trainer runs in
    search_path = [str(folder), str(dropins or ""), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, search_path)),
        "SPLATFIX_INSIDE": str(configuration),
    }
