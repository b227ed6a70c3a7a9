"""What a stack's own trainer finds when it is certified: the observer, drop-ins, a copy of the scene, and its command line."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from splatfix.certify.smoke import child_variables
from splatfix.certify.stacks.subject import StackSubject
from splatfix.core.errors import SplatfixError
from splatfix.core.files import make_folder
from splatfix.core.resources import SMOKE_TRAINER
from splatfix.knowledge.schedules import short_schedule, words_for

_INSIDE = Path(__file__).parent.with_name("inside")
_NOT_CODE = shutil.ignore_patterns("__pycache__")
_LINKED = (".jpg", ".jpeg", ".png", ".npy", ".npz", ".exr", ".tif", ".tiff", ".webp")
"""Files of a scene that no trainer writes to, by their endings."""


def stage_inside(
    folder: Path, subject: StackSubject, out: Path, written: Sequence[Path] = ()
) -> dict[str, str]:
    """Put the observer into ``folder`` and return the variables with which a child loads it, and the drop-ins, first.

    What it observes goes to ``out``; only this run writes to the folders of ``written``. On a GPU nothing is passed over: no file
    that torch refuses to load, and no module that lacks a library.
    """
    for name in subject.standins:
        shutil.copyfile(_INSIDE / "compiled" / f"{name}.py", folder / f"{name}.py")
    settings = {
        "out": str(out.resolve()),
        "checkout": str(subject.source),
        "cpu": subject.rehearsed,
        "extensions": subject.extensions,
        "placeholders": subject.placeholders,
        "needed": subject.needed if subject.rehearsed else (),
        "written": list(map(str, written)) if subject.rehearsed else (),
    }
    variables = child_variables(folder) | stage_observer(folder, settings, subject.dropins)
    if subject.rehearsed and shutil.which("nvidia-smi") is None:
        # for trainers that choose the idlest GPU by its output, as Scaffold-GS does
        program = make_folder(folder / "bin") / "nvidia-smi"
        shutil.copyfile(_INSIDE / "nvidia-smi", program)
        program.chmod(0o755)
        variables["PATH"] = f"{program.parent}{os.pathsep}{variables.get('PATH', os.defpath)}"
    if subject.threads:
        variables["OMP_NUM_THREADS"] = str(subject.threads)
    return {**variables, "WANDB_MODE": "disabled"}


def stage_observer(folder: Path, settings: Mapping[str, Any], dropins: Path | None = None) -> dict[str, str]:
    """Put the observer into a folder; return the variables with which Python loads it before any other code, and drop-ins before
    what is installed.

    Args:
        settings: what it is to do; ``out`` is the folder that it writes to.
    """
    package = folder / "splatfix" / "certify"
    if not package.exists():
        shutil.copytree(_INSIDE, package / "inside", ignore=_NOT_CODE)
        for parent in (package, package.parent):
            (parent / "__init__.py").write_text('"""Staged by splatfix."""\n', encoding="utf-8")
        shutil.copyfile(_INSIDE / "startup.py", folder / "sitecustomize.py")
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

    Links are followed, for many have their photos elsewhere; not those to a folder around them, to a device or a pipe.

    Raises:
        SplatfixError: ``scene-not-copied`` (exit code 3).
    """

    def left_out(parent: str, names: list[str]) -> list[str]:
        within = Path(parent).relative_to(scene)
        # each folder that was gone through on the way here: what leads back into it has no end
        way = [(scene / above).resolve() for above in (within, *within.parents)]
        real = {name: Path(parent, name).resolve() for name in names}
        return [
            name
            for name, path in real.items()
            if not (path.is_file() or path.is_dir()) or any(above.is_relative_to(path) for above in way)
        ]

    def copy(source: str, target: str) -> None:
        if Path(source).suffix.lower() in _LINKED:
            with suppress(OSError):  # no links here
                Path(target).symlink_to(Path(source).resolve())
                return
        shutil.copyfile(source, target)

    try:
        return Path(shutil.copytree(scene, destination, ignore=left_out, copy_function=copy))
    except (OSError, RecursionError) as error:
        reason: object = error
        if isinstance(error, shutil.Error):  # which has a row of each file
            reason = error.args[0][0][-1]
        raise SplatfixError.of("certify.scene-not-copied", scene=scene, reason=reason) from error


def training_arguments(
    subject: StackSubject, options: Mapping[str, str], scene: Path, model: Path
) -> list[str]:
    """Return what follows ``train.py``: scene, where to write, the short schedule as far as the trainer has the options (by name,
    as they are typed), and the user's own arguments, which win."""
    arguments = ["--source_path", str(scene), "--model_path", str(model)]
    for name, setting in short_schedule().items():
        if name in options:
            arguments += [options[name], *setting.words(subject.iterations)]
    if subject.resolution is not None and "resolution" in options:
        arguments += ["--resolution", str(subject.resolution)]
    if subject.images and "images" in options:
        arguments += ["--images", subject.images]
    if "port" in options:
        # one that nobody listens on now: Inria's family opens it for a viewer
        with socket.socket() as opened:
            opened.bind(("127.0.0.1", 0))
            arguments += ["--port", str(opened.getsockname()[1])]
    return [*arguments, *words_for(subject.key), *subject.request.train_arguments]
