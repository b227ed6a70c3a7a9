"""Writes the mended copy of a scene: photos, smaller copies, the model as it is, and a split. What was begun goes on where it
stopped."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.files import TEMPORARY, make_folder, read_json, write_json, write_text
from splatfix.core.reading import is_regular_file, read_blocks
from splatfix.core.step import run
from splatfix.core.words import counted, few
from splatfix.facts.scene.model import Scene
from splatfix.facts.scene.photos import leads_out
from splatfix.facts.scene.reader import read_scene
from splatfix.facts.scene.transforms import TEST, TRAIN, read_transforms
from splatfix.scenes.photos import Change, PhotoJob, jobs_of, require_pillow, write_below, write_photos

MARKER = "splatfix-scene.json"
"""In a copy: what it was made of, with which options, and whether it is finished."""
T = TypeVar("T")


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


def fix_scene(request: FixRequest, progress: Callable[[str], None]) -> Fixed:
    """Write the copy.

    Raises:
        SplatfixError: ``not-a-scene``, ``leads-out``, ``copy-elsewhere``, ``copy-exists``, ``needs-pillow`` (exit code 2);
            ``scene-damaged``, ``photo-not-readable`` (1); ``cannot-write`` (3).
    """
    folder, out = (Path(os.path.realpath(path)) for path in (request.folder, request.out))
    request = replace(request, folder=folder, out=out)
    scene = read_scene(request.folder)
    files = dict(_beside_photos(scene))
    if not scene.layout:
        check = run("splatfix", "scenes", "check", scene.folder)
        raise usage_error("not-a-scene", f"{scene.folder} has neither a reconstruction nor photos.", check)
    # what is copied may be passed on, and what links of a stranger's scene lead to is not theirs
    outside = [path for path, photo in scene.present.items() if photo.outside]
    outside += [name for name in (*files, "masks") if leads_out(scene.folder, name)]
    if outside:
        raise SplatfixError.of("scenes.leads-out", folder=scene.folder, names=few(outside))
    if scene.damage:
        raise SplatfixError.of("scenes.reconstruction-damaged", folder=scene.folder, damage=scene.damage)
    jobs = jobs_of(scene, request.copies)
    if any(job.by_pillow for job in jobs):
        require_pillow()
    begun = _begin(request)
    write_photos(scene.folder, out, jobs, progress)
    for name, target in files.items():
        try:
            blocks = read_blocks(folder / name)
            first = next(blocks, b"")
        except OSError as error:
            raise SplatfixError.of("scenes.scene-damaged", source=folder / name, reason=error) from error
        write_below(out, target, chain((first,), blocks))
    changes = list(_in_words(scene, jobs, request.copies))
    if scene.layout == "blender" and not scene.test_file:
        changes.append(_split_frames(scene.folder, request.out))
    elif request.split and scene.layout != "blender":
        changes.append(_write_lists(scene, request.out))
    write_json(request.out / MARKER, {**begun, "finished": True})
    return Fixed(str(request.out), tuple(changes))


def _beside_photos(scene: Scene) -> Iterator[tuple[str, str]]:
    """The files of a scene that are no photos: paths below its folder and below the copy's."""
    if scene.model is not None:
        # the one place where all trainers look
        for path in sorted((scene.folder / scene.model.folder).glob(f"*{scene.model.suffix}")):
            yield f"{scene.model.folder}/{path.name}", f"sparse/0/{path.name}"
    for name in scene.masks:
        yield f"masks/{name}", f"masks/{name}"
    for path in sorted(scene.folder.glob("*.json")) + sorted(scene.folder.glob("*.ply")):
        if path.name != MARKER and is_regular_file(path):
            yield path.name, path.name


def _begin(request: FixRequest) -> Mapping[str, object]:
    """Create the copy's folder with its marker, or find the one that was begun before."""
    source, out = request.folder, request.out
    if source == out or source in out.parents or out in source.parents:
        raise SplatfixError.of("scenes.copy-elsewhere")
    options = {"copies": list(request.copies), "split": request.split, "folder": str(source)}
    begun = {"schema_version": 1, "made_from": options, "finished": False}
    marker = out / MARKER
    # killed before its marker stood, a copy holds nothing but the marker's temporary file
    if not out.exists() or (out.is_dir() and all(path.name.startswith(TEMPORARY) for path in out.iterdir())):
        make_folder(out)
        write_json(marker, begun)
    elif not marker.is_file() or read_json(marker, "the record of a copy").get("made_from") != options:
        raise SplatfixError.of("scenes.copy-exists", out=request.out)
    for path in out.rglob(f"{TEMPORARY}*"):
        path.unlink()
    return begun


def _in_words(scene: Scene, jobs: list[PhotoJob], divisors: tuple[int, ...]) -> Iterator[str]:
    counts = Counter(job.change for job in jobs)
    for change in Change:
        if counts[change]:
            yield f"{counted(counts[change], 'photo')} {change.value}"
    if renamed := sum(job.source != job.path for job in jobs):
        yield f"{counted(renamed, 'photo')} renamed as the reconstruction has them"
    made = {divisor for job in jobs for divisor, _ in job.copies}
    if made:
        yield "smaller copies in " + ", ".join(f"images_{divisor}" for divisor in sorted(made))
        for divisor in sorted(set(divisors) - made):
            yield f"images_{divisor} left out: the photos are smaller than 1/{divisor} of what their cameras state"
    if scene.model is not None and scene.model.folder != "sparse/0":
        yield f"model moved from {scene.model.folder} to sparse/0"
    if scene.ply_points is not None:
        yield "points3D.ply left out: the trainer writes it again"


def _split(items: Sequence[T]) -> tuple[list[T], list[T]]:
    """Part what is trained on from what is held out: of the sorted names the first of every eight, as all the field's COLMAP
    readers do."""
    return [item for number, item in enumerate(items) if number % 8], list(items[::8])


def _split_frames(source: Path, out: Path) -> str:
    """Every eighth frame of a Blender scene goes into the file for testing."""
    document = read_transforms(source, TRAIN)
    frames = [frame for frame in document["frames"] if isinstance(frame, dict)]
    train, held_out = _split(sorted(frames, key=lambda frame: str(frame.get("file_path"))))
    # the file for training last: with both there the split is whole
    write_json(out / TEST, {**document, "frames": held_out})
    write_json(out / TRAIN, {**document, "frames": train})
    return f"{counted(len(held_out), 'frame')} held out in {TEST}"


def _write_lists(scene: Scene, out: Path) -> str:
    """As nerfstudio's readers have them: names below the folder of the photos."""
    train, held_out = _split(sorted(image.name for image in scene.images))
    write_text(out / "test_list.txt", "".join(f"{name}\n" for name in held_out))
    write_text(out / "train_list.txt", "".join(f"{name}\n" for name in train))
    return f"{counted(len(held_out), 'view')} held out in test_list.txt"
