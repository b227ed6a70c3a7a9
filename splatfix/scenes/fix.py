"""Writes the mended copy of a scene: photos, smaller copies, the model as it is, and a split. What was begun goes on where it
stopped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import fields, replace

from splatfix.core.codec import to_json
from splatfix.core.errors import SplatfixError, cannot_write, usage_error
from splatfix.core.files import TEMPORARY, make_folder, read_json, write_bytes, write_json, write_text
from splatfix.core.limits import MOST_JSON
from splatfix.core.reading import read_bytes, read_text
from splatfix.core.step import run, say
from splatfix.core.words import counted
from splatfix.facts.scene.model import Model, Scene
from splatfix.facts.scene.reader import read_scene
from splatfix.facts.scene.transforms import TEST, TRAIN
from splatfix.scenes.photos import Change, PhotoJob, jobs_of, write_photos

MARKER = "splatfix-scene.json"
"""In a copy: what it was made of, with which options, and whether it is finished."""
TEST_EVERY = 8
"""Of the sorted names the first of every eight is held out, as all the field's COLMAP readers do."""
_FOLDERS = ("folder", "out")
_MOST_FILE = 8 << 30


class FixRequest(Struct, frozen=True):
    """What was asked of ``splatfix scenes fix``."""

    folder: Path
    out: Path
    copies: tuple[int, ...] = (2, 4, 8)
    split: bool = False
    """Also write lists of training and test views where the layout has no files for them."""


class Fixed(Struct, frozen=True):
    """What was done."""

    folder: str
    changes: tuple[str, ...]
    """In words, without full stops."""


Progress = Callable[[str], None]


def fix_scene(request: FixRequest, progress: Progress) -> Fixed:
    """Write the copy.

    Raises:
        SplatfixError: ``not-a-scene``, ``copy-elsewhere``, ``copy-exists``, ``needs-pillow`` (exit code 2); ``scene-damaged``,
            ``photos-elsewhere``, ``photo-not-readable`` (1); ``cannot-write`` (3).
    """
    request = replace(request, folder=request.folder.resolve(), out=request.out.resolve())
    scene = read_scene(request.folder)
    _require_scene(scene)
    begun = _begin(request)
    _require_room(scene, request)
    jobs = jobs_of(scene, request.copies)
    counts = write_photos(
        scene.folder, request.out, jobs, lambda number, total: progress(f"photos: {number} of {total}")
    )
    changes = (*_in_words(counts, jobs), *_write_rest(scene, request))
    write_json(request.out / MARKER, {**begun, "finished": True})
    return Fixed(str(request.out), changes)


def _require_scene(scene: Scene) -> None:
    check = run("splatfix", "scenes", "check", scene.folder)
    if not scene.layout:
        raise usage_error("not-a-scene", f"{scene.folder} has neither a reconstruction nor photos.", check)
    if scene.damage:
        raise SplatfixError.of("scenes.reconstruction-damaged", folder=scene.folder, damage=scene.damage)
    if scene.elsewhere:
        raise SplatfixError.of("scenes.photos-elsewhere", scene=scene.folder, elsewhere=scene.elsewhere)


def _begin(request: FixRequest) -> Mapping[str, object]:
    """Create the copy's folder with its marker, or find the one that was begun before.

    Raises:
        SplatfixError: ``copy-elsewhere`` or ``copy-exists`` (exit code 2), ``cannot-write`` (3).
    """
    source, out = request.folder, request.out
    if source == out or source in out.parents or out in source.parents:
        raise SplatfixError.of("scenes.copy-elsewhere")
    options = {
        **{
            field.name: to_json(getattr(request, field.name))
            for field in fields(request)
            if field.name not in _FOLDERS
        },
        "folder": str(source),
    }
    begun = {"schema_version": 1, "made_from": options, "finished": False}
    marker = out / MARKER
    # killed before its marker stood, a copy holds nothing but the marker's temporary file
    if not out.exists() or (out.is_dir() and all(path.name.startswith(TEMPORARY) for path in out.iterdir())):
        make_folder(out)
        write_json(marker, begun)
    elif not marker.is_file() or read_json(marker, "the record of a copy").get("made_from") != options:
        raise SplatfixError.of("scenes.copy-exists", out=request.out)
    for unfinished in out.rglob(f"{TEMPORARY}*"):
        unfinished.unlink()
    return begun


def _require_room(scene: Scene, request: FixRequest) -> None:
    """Refuse before anything is written where the disk cannot hold it.

    Raises:
        SplatfixError: ``cannot-write`` (exit code 3).
    """
    photos = sum(photo.size_bytes for photo in scene.photos.values() if photo is not None)
    there = sum(path.stat().st_size for path in request.out.rglob("*") if path.is_file())
    needed = int(photos * (1.0 + sum(1.0 / divisor**2 for divisor in request.copies)))
    if scene.model is not None:
        needed += sum(
            path.stat().st_size for path in (scene.folder / scene.model.folder).iterdir() if path.is_file()
        )
    free = shutil.disk_usage(request.out).free
    if needed - there > free:
        raise cannot_write(
            f"The copy needs about {needed / 2**20:.0f} MiB, and {request.out} has {free / 2**20:.0f} MiB free.",
            say("Give a folder on another disk with --out."),
        )


def _in_words(counts: Mapping[Change, int], jobs: list[PhotoJob]) -> Iterator[str]:
    for change, count in counts.items():
        if count:
            yield f"{counted(count, 'photo')} {change.value}"
    divisors = sorted({divisor for job in jobs for divisor, _ in job.copies})
    if divisors:
        yield "smaller copies in " + ", ".join(f"images_{divisor}" for divisor in divisors)


def _write_rest(scene: Scene, request: FixRequest) -> Iterator[str]:
    """Everything but the photos; yields what was done."""
    if scene.model is not None:
        yield from _copy_model(scene, scene.model, request.out)
    for name in scene.masks:
        _copy(scene.folder / "masks" / name, request.out / "masks" / name)
    for path in sorted(scene.folder.glob("*.json")) + sorted(scene.folder.glob("*.ply")):
        if path.name != MARKER:
            _copy(path, request.out / path.name)
    if scene.layout == "blender" and not scene.test_file:
        yield _split_frames(scene.folder, request.out)
    elif request.split and scene.layout != "blender":
        yield _write_lists(scene, request.out)


def _copy_model(scene: Scene, model: Model, out: Path) -> Iterator[str]:
    """Copy a COLMAP model to the one place where all trainers look; yields what was done."""
    for path in sorted((scene.folder / model.folder).glob(f"*{model.suffix}")):
        _copy(path, out / "sparse" / "0" / path.name)
    if model.folder != "sparse/0":
        yield f"model moved from {model.folder} to sparse/0"
    if scene.ply_points is not None:
        yield "points3D.ply left out: the trainer writes it again"


def _split_frames(source: Path, out: Path) -> str:
    """Every eighth frame of a Blender scene goes into the file for testing."""
    text = read_text(source / TRAIN, MOST_JSON)
    document = json.loads(text if isinstance(text, str) else "{}")
    frames = sorted(document["frames"], key=lambda frame: str(frame.get("file_path")))
    held_out = frames[::TEST_EVERY]
    train = [frame for frame in document["frames"] if frame not in held_out]
    # the file for training last: with both there the split is whole
    write_json(out / TEST, {**document, "frames": held_out})
    write_json(out / TRAIN, {**document, "frames": train})
    return f"{counted(len(held_out), 'frame')} held out in {TEST}"


def _write_lists(scene: Scene, out: Path) -> str:
    """As nerfstudio's readers have them: names below the folder of the photos."""
    names = sorted(image.name for image in scene.images)
    held_out = names[::TEST_EVERY]
    train = [name for name in names if name not in held_out]
    write_text(out / "test_list.txt", "".join(f"{name}\n" for name in held_out))
    write_text(out / "train_list.txt", "".join(f"{name}\n" for name in train))
    return f"{counted(len(held_out), 'view')} held out in test_list.txt"


def _copy(source: Path, target: Path) -> None:
    content = read_bytes(source, _MOST_FILE)
    if not isinstance(content, bytes):
        reason = content.reason if content else "it is gone"
        raise SplatfixError.of("scenes.scene-damaged", source=source, reason=reason)
    make_folder(target.parent)
    write_bytes(target, content)
