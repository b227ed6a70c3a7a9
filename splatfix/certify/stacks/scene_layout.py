"""Whether a scene has the layout and the camera models that a trainer's own source names, before the trainer is run.

Read are the literals of its code, not what it does with them: a finding is one of a run that then ended before its first step.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from splatfix.certify.model import Mend
from splatfix.core.reading import read_bytes
from splatfix.core.step import run, say
from splatfix.core.words import few
from splatfix.facts.scene.colmap import MODELS, Damaged, read_cameras

_MOST_FILES = 400
_COMPARED = re.compile(r"(?:==|\bin)\s*[\[({]?\s*((?:[\"'][A-Z_]+[\"']\s*,?\s*)+)")
_COMMENT = re.compile(r"(?m)^\s*#.*$")
_TYPES = re.compile(r"[\"'](transforms\w*\.json)[\"']")


def scene_problems(source: Path, scene: Path, images: str) -> tuple[Mend, ...]:
    """Return what of the scene does not fit what the trainer in ``source`` looks for, and its code names; ``images`` is the
    folder that it is told."""
    # its Python files, two folders deep, without lines that are comments
    files = (path for pattern in ("*.py", "*/*.py") for path in sorted(source.glob(pattern)))
    contents = [read_bytes(path) for path in islice(files, _MOST_FILES)]
    code = [item.decode("utf-8", errors="replace") for item in contents if isinstance(item, bytes)]
    text = _COMMENT.sub("", "\n".join(code))
    if not re.search(r"[\"']sparse[\"'/]", text):
        return ()
    if (scene / "sparse").is_dir():
        return tuple(_colmap_problems(text, scene, images or "images"))
    types = sorted(set(_TYPES.findall(text)))
    if not types or any((scene / name).is_file() for name in types):
        return ()
    summary = f"The scene has neither a folder sparse nor {few(types)}, which the trainer looks for."
    look = run("splatfix", "scenes", "check", scene, text="See what lies there")
    move = say("Put COLMAP's model into its sparse/0, or give the folder that has one with --scene.")
    return (Mend("scene-type", summary, (look, move)),)


def _colmap_problems(text: str, scene: Path, images: str) -> Iterator[Mend]:
    model = scene / "sparse" / "0"
    taken = _camera_models_taken(text)
    strange = sorted(_camera_models(model) - taken) if taken else []
    if re.search(r"sparse[\"']?[/,]\s*[\"']?0", text) and not _has_model(model):
        summary, advice = "The scene has no COLMAP model in sparse/0", "Run COLMAP's mapper on it again."
        for folder in (scene / "sparse", *sorted(scene.glob("sparse/*"))):
            if _has_model(folder):
                elsewhere = folder.relative_to(scene).as_posix()
                summary += f"; one lies in {elsewhere}"
                advice = f"Move its files from {elsewhere} to sparse/0."
                break
        yield Mend("scene-model-missing", f"{summary}.", (say(advice),))
    elif strange:
        undistort = run(
            *("colmap", "image_undistorter", "--image_path", scene / images, "--input_path", model),
            *("--output_path", f"{scene}-undistorted"),
            text="Train on undistorted images, and move the model that it writes to sparse/0",
        )
        summary = f"The scene has cameras of the model {few(strange)}, and the trainer takes {few(sorted(taken))} only."
        yield Mend("scene-camera-model", summary, (undistort,))
    if re.search(r"[\"']images[\"']", text) and not any((scene / images).glob("*")):
        summary = f"The scene has no images in the folder {images}."
        advice = "Put them there, or name their folder after -- as the trainer's --images."
        yield Mend("scene-images-missing", summary, (say(advice),))


def _has_model(folder: Path) -> bool:
    """It has a COLMAP model's cameras and images."""
    kinds = (".bin", ".txt")
    return any(
        (folder / f"cameras{kind}").is_file() and (folder / f"images{kind}").is_file() for kind in kinds
    )


def _camera_models_taken(text: str) -> set[str]:
    """Camera models that the code compares with; Inria's readers are chains of ``intr.model == "PINHOLE"``."""
    known = {name for name, _ in MODELS.values()}
    names = {name for literals in _COMPARED.findall(text) for name in re.findall(r"\w+", literals)} & known
    return names if names & {"PINHOLE", "SIMPLE_PINHOLE"} else set()


def _camera_models(folder: Path) -> set[str]:
    """Camera models of a COLMAP model, of the binary file where there is one; none where it cannot be read."""
    suffix = ".bin" if (folder / "cameras.bin").is_file() else ".txt"
    try:
        return {camera.model for camera in read_cameras(folder, suffix).values()}
    except (Damaged, OSError):
        return set()
