"""What a stack's own trainer finds when it is certified: the observer, drop-ins, a copy of the scene; and how far it is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from splatfix.certify.smoke import child_variables
from splatfix.core.errors import SplatfixError
from splatfix.core.files import make_folder
from splatfix.core.reading import read_start
from splatfix.core.resources import SMOKE_TRAINER

_INSIDE = Path(__file__).parent.with_name("inside")
_NOT_CODE = shutil.ignore_patterns("__pycache__")
_LINKED = (".jpg", ".jpeg", ".png", ".npy", ".npz", ".exr", ".tif", ".tiff", ".webp")
"""Files of a scene that no trainer writes to, by their endings."""
_RECENT = 20
"""Iterations that the speed is a mean of."""
_TAIL = 1 << 16
"""Bytes that hold as many lines, of some hundred bytes each."""


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
        shutil.copyfile(_INSIDE / "startup.py", folder / "sitecustomize.py")
        for name in settings.get("standins", ()):
            shutil.copyfile(_INSIDE / "compiled" / f"{name}.py", folder / f"{name}.py")
        # of which the observer needs the record, and how memory and updates are measured
        shutil.copytree(SMOKE_TRAINER, folder / "smoke_trainer", ignore=_NOT_CODE)
    configuration = Path(settings["out"], "inside.json")
    complete = {"placeholders": (), "needed": (), "written": (), **settings}
    configuration.write_text(json.dumps(complete), encoding="utf-8")
    # what the user's own PYTHONPATH leads to belongs to the environment that the trainer runs in
    search_path = [str(folder), str(dropins or ""), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, search_path)),
        "SPLATFIX_INSIDE": str(configuration),
    }


def copy_scene(scene: Path, destination: Path) -> Path:
    """Copy a scene for a trainer that may write into it, as Inria's does with ``points3D.ply``; images are linked where possible.

    Links are followed, for many have their photos elsewhere; not those to a folder around them, which have no end.

    Raises:
        SplatfixError: ``scene-not-copied`` (exit code 3).
    """

    def leads_back(parent: str, names: list[str]) -> list[str]:
        around = Path(parent).resolve()
        return [name for name in names if around.is_relative_to(Path(parent, name).resolve())]

    def copy(source: str, target: str) -> None:
        if Path(source).suffix.lower() in _LINKED:
            with suppress(OSError):  # no links here
                Path(target).symlink_to(Path(source).resolve())
                return
        shutil.copyfile(source, target)

    try:
        shutil.copytree(
            scene, destination, ignore=leads_back, copy_function=copy, ignore_dangling_symlinks=True
        )
    except (OSError, RecursionError) as error:
        reason: object = error
        if isinstance(error, shutil.Error):  # which has a row of each file
            reason = error.args[0][0][-1]
        raise SplatfixError.of("certify.scene-not-copied", scene=scene, reason=reason) from error
    return destination


def latest(path: Path, iterations: int) -> dict[str, Any]:
    """Return the progress object of the last whole line of an observer's ``metrics.jsonl``; {} where there is none."""
    try:
        size = path.stat().st_size
    except OSError:  # not yet there
        return {}
    lines = read_start(path, _TAIL, max(0, size - _TAIL)).split(b"\n")[:-1]
    if size > _TAIL:
        del lines[0]  # the end of one
    rows = [json.loads(line) for line in lines[-_RECENT:]]
    if not rows:
        return {}
    state = {"iterations": iterations}
    for name in ("iteration", "loss", "gaussians", "rss_gb", "vram_allocated_gb"):
        state[name] = rows[-1].get(name)
    # the first has waited for the scene
    spent = [sum(row["ms"].values()) / 1000 for row in rows if row["iteration"] > 1]
    if sum(spent) > 0:
        state["iterations_per_second"] = len(spent) / sum(spent)
    return state
