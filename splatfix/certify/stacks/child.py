"""What a stack's own trainer finds when it is certified: the observer, drop-ins, a copy of the scene, and its command line."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from splatfix.certify.smoke import child_variables
from splatfix.certify.stacks.subject import StackSubject
from splatfix.certify.stacks.threads import VARIABLE
from splatfix.core.errors import SplatfixError
from splatfix.core.files import make_folder
from splatfix.core.reading import read_blocks
from splatfix.core.resources import SMOKE_TRAINER
from splatfix.knowledge.schedules import short_schedule, words_for

_INSIDE = Path(__file__).parent.with_name("inside")
STANDINS = frozenset({"torch_scatter"})
"""Compiled packages beside the splatting extensions that a rehearsal can do without."""
_LINKED = (".jpg", ".jpeg", ".png", ".npy", ".npz", ".exr", ".tif", ".tiff", ".webp")
"""Files of a scene that no trainer writes to, by their endings."""
_MOST_ENTRIES, _MOST_COPIED = 200_000, 16 << 30
"""Of a scene, and bytes of its files that are no images: models, point clouds."""


def stage_inside(
    folder: Path, subject: StackSubject, out: Path, written: Sequence[Path] = ()
) -> dict[str, str]:
    """Put the observer into ``folder`` and return the variables with which a child loads it, and the drop-ins, first.

    What it observes goes to ``out``; only this run writes to the folders of ``written``. On a GPU nothing is passed over: no file
    that torch refuses to load, and no module that lacks a library.
    """
    stage_observer(folder)
    for name in subject.gaps.standins:
        shutil.copyfile(_INSIDE / "compiled" / f"{name}.py", folder / f"{name}.py")
    settings = {
        "out": str(out),
        "checkout": str(subject.source),
        "cpu": subject.rehearsed,
        "extensions": subject.extensions,
        "placeholders": subject.gaps.placeholders,
        "needed": subject.needed if subject.rehearsed else (),
        "written": list(map(str, written)) if subject.rehearsed else (),
    }
    configured = configure(out, settings)
    variables = child_variables(folder)
    if subject.rehearsed and shutil.which("nvidia-smi") is None:
        # for trainers that choose the idlest GPU by its output, as Scaffold-GS does
        program = make_folder(folder / "bin") / "nvidia-smi"
        shutil.copyfile(_INSIDE / "nvidia-smi", program)
        program.chmod(0o755)
        variables["PATH"] = f"{program.parent}{os.pathsep}{variables.get('PATH', os.defpath)}"
    if subject.threads:
        variables[VARIABLE] = str(subject.threads.count)
    # what the user's own PYTHONPATH leads to belongs to the environment that the trainer runs in
    search_path = [str(folder), str(subject.dropins or ""), os.environ.get("PYTHONPATH", "")]
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join(filter(None, search_path)),
        **configured,
        "WANDB_MODE": "disabled",
    }


def stage_observer(folder: Path) -> None:
    """Put the observer into a folder: Python loads it from there before any other code."""
    package = folder / "splatfix" / "certify"
    if package.exists():
        return
    shutil.copytree(_INSIDE, package / "inside", ignore=shutil.ignore_patterns("__pycache__"))
    for parent in (package, package.parent):
        (parent / "__init__.py").write_text('"""Staged by splatfix."""\n', encoding="utf-8")
    shutil.copyfile(_INSIDE / "startup.py", folder / "sitecustomize.py")
    trainer = make_folder(folder / "smoke_trainer")  # of which the observer needs two files
    for name in ("__init__.py", "record.py", "updates.py"):
        shutil.copyfile(SMOKE_TRAINER / name, trainer / name)


def configure(out: Path, settings: Mapping[str, object]) -> dict[str, str]:
    """Write what the observer is to do, and return the variable that leads it there."""
    configuration = out.resolve() / "inside.json"
    complete = {"placeholders": (), "needed": (), "written": (), **settings}
    configuration.write_text(json.dumps(complete), encoding="utf-8")
    return {"SPLATFIX_INSIDE": str(configuration)}


def copy_scene(scene: Path, destination: Path) -> Path:
    """Copy a scene for a trainer that may write into it, as Inria's does with ``points3D.ply``; images are linked where possible.

    Links are followed, for many have their photos elsewhere; not those to a folder around them, to a device or a pipe.

    Raises:
        SplatfixError: ``scene-not-copied`` (exit code 3).
    """
    entries, room = 0, _MOST_COPIED

    def fail(reason: object) -> SplatfixError:
        """Make the error; no OSError, which copytree only notes down, to go on."""
        return SplatfixError.of("certify.scene-not-copied", scene=scene, reason=reason)

    def left_out(parent: str, names: list[str]) -> list[str]:
        nonlocal entries
        entries += len(names)
        if entries > _MOST_ENTRIES:
            raise fail(f"it has more than {_MOST_ENTRIES:,} files, those behind links counted")
        here = Path(parent)
        within = here.relative_to(scene)
        # each folder that was gone through on the way here: what leads back into it has no end
        way = [(scene / above).resolve() for above in (within, *within.parents)]
        real = {name: Path(os.path.realpath(here / name)) for name in names}
        return [
            name
            for name, path in real.items()
            if not (path.is_file() or path.is_dir()) or any(above.is_relative_to(path) for above in way)
        ]

    def copy(source: str, target: str) -> None:
        nonlocal room
        if Path(source).suffix.lower() in _LINKED:
            with suppress(OSError):  # no links here
                Path(target).symlink_to(Path(source).resolve())
                return
        try:
            with Path(target).open("wb") as file:
                for block in read_blocks(source, room):
                    room -= file.write(block)
        except OSError as error:
            raise fail(error) from error

    try:
        return Path(shutil.copytree(scene, destination, ignore=left_out, copy_function=copy))
    except (OSError, RecursionError) as error:
        raise fail(error) from error


def training_arguments(
    subject: StackSubject, options: Mapping[str, str], scene: Path, model: Path
) -> list[str]:
    """Return what follows ``train.py``: scene, where to write, the short schedule as far as the trainer has the options (by name,
    as they are typed), and the user's own arguments, which win."""
    arguments = ["--source_path", str(scene), "--model_path", str(model)]
    for name, setting in short_schedule().items():
        if name in options:
            arguments += [options[name], *setting.words(subject.iterations)]
    if subject.scene.resolution is not None and "resolution" in options:
        arguments += ["--resolution", str(subject.scene.resolution)]
    if subject.scene.images and "images" in options:
        arguments += ["--images", subject.scene.images]
    if "port" in options:
        # one that nobody listens on now: Inria's family opens it for a viewer
        with socket.socket() as opened:
            opened.bind(("127.0.0.1", 0))
            arguments += ["--port", str(opened.getsockname()[1])]
    return [*arguments, *words_for(subject.key), *subject.request.train_arguments]
