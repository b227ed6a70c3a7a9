"""How large a scene is: photos, their size and points, from the headers of its files. No photo is decoded.

Formats: COLMAP's documentation "Output Format" (images.bin and points3D.bin begin with their count; a camera is id, model, width,
height), and the frames of Blender's and nerfstudio's ``transforms.json``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from splatfix.core.codec import parse_json
from splatfix.core.data import dataclass, replace
from splatfix.core.limits import MOST_JSON
from splatfix.core.reading import read_blocks, read_start, read_text

_MODELS = ("sparse/0", "sparse", "colmap/sparse/0")
_TRANSFORMS = ("transforms_train.json", "transforms.json")
_RANDOM_POINTS = 100_000
"""That Inria's trainer starts from where a Blender scene has no points (scene/dataset_readers.py)."""
_MOST_COUNTED = 1 << 30
_LONGEST_LINE = 1 << 12


@dataclass(frozen=True)
class SceneSize:
    """Photos, size of one, points; ``found_via`` are the files."""

    photos: int
    width: int
    height: int
    points: int
    found_via: str
    channels: int = 3
    """4 where the photos have alpha, as far as a header says so."""
    prepared: int = 1
    """By how much the smallest copies beside the photos are reduced: 8 where there is an ``images_8``."""


def read_scene_size(folder: Path) -> SceneSize | str:
    """The size of a scene, or why the folder is none, or a damaged one."""
    if not folder.is_dir():
        return f"there is no folder {folder}"
    for name in _MODELS:
        model = folder / name
        if (model / "images.bin").is_file() or (model / "images.txt").is_file():
            try:
                return replace(_of_colmap(model, name), prepared=_prepared(folder))
            except (OSError, ValueError, struct.error):
                return f"the COLMAP model in {model} is damaged or not complete"
    for name in _TRANSFORMS:
        if (folder / name).is_file():
            return _of_transforms(folder, name)
    return f"{folder} has neither sparse/ (COLMAP) nor transforms_train.json or transforms.json"


def _of_colmap(model: Path, name: str) -> SceneSize:
    if (model / "images.bin").is_file():
        (photos,) = struct.unpack("<Q", read_start(model / "images.bin", 8))
        (points,) = struct.unpack("<Q", read_start(model / "points3D.bin", 8))
        *_, width, height = struct.unpack("<QiiQQ", read_start(model / "cameras.bin", 32))
        return _plausible(photos, width, height, points, f"{name}/*.bin")
    cameras = list(_lines(model / "cameras.txt"))
    if not cameras:
        raise ValueError("no camera")
    _, _, width, height, *_ = cameras[0].split()
    photos = sum(1 for _ in _lines(model / "images.txt", blank=True)) // 2
    points = sum(1 for _ in _lines(model / "points3D.txt"))
    return _plausible(photos, int(width), int(height), points, f"{name}/*.txt")


def _prepared(folder: Path) -> int:
    return next((divisor for divisor in (8, 4, 2) if (folder / f"images_{divisor}").is_dir()), 1)


def _lines(path: Path, *, blank: bool = False) -> Iterator[str]:
    """Lines without comments; ``blank``: empty ones too, for a photo may have no points."""
    rest = b""
    for block in read_blocks(path, _MOST_COUNTED):
        first, *lines = block.split(b"\n")
        # of a line nobody needs more: one without an end would take all memory
        rest = (rest + first)[:_LONGEST_LINE]
        for line in lines:
            if _counts(rest, blank):
                yield rest.decode("utf-8", "replace")
            rest = line
    if rest.strip() and _counts(rest, blank):
        yield rest.decode("utf-8", "replace")


def _counts(line: bytes, blank: bool) -> bool:
    return not line.startswith(b"#") and (blank or bool(line.strip()))


def _plausible(
    photos: int, width: int, height: int, points: int, found_via: str, channels: int = 3
) -> SceneSize:
    if not (0 < photos <= 1_000_000 and 0 < width <= 1 << 16 and 0 < height <= 1 << 16 and points <= 1 << 32):
        raise ValueError("no counts of photos, pixels and points")
    return SceneSize(photos, width, height, points, found_via, channels)


def _of_transforms(folder: Path, name: str) -> SceneSize | str:
    try:
        document = _document(folder / name)
        frames = list(document["frames"])
        if name == "transforms_train.json" and (folder / "transforms_test.json").is_file():
            frames += _document(folder / "transforms_test.json")["frames"]
        width, height, channels = document.get("w"), document.get("h"), 3
        if width is None or height is None:
            width, height, channels = _size_of_png(folder, str(frames[0]["file_path"]))
        cloud = document.get("ply_file_path", "points3d.ply")
        points = _points_of_ply(folder / str(cloud)) or _RANDOM_POINTS
        return _plausible(len(frames), int(width), int(height), points, name, channels)
    except (KeyError, TypeError, ValueError, IndexError, struct.error, OSError):
        return f"{folder / name} has no frames, or not the size of its photos"


def _document(path: Path) -> dict[str, Any]:
    text = read_text(path, MOST_JSON)
    if not isinstance(text, str):
        raise OSError(f"{path} cannot be read")
    document = parse_json(text)
    if not isinstance(document, dict):
        raise ValueError(f"{path} is no object")
    return document


def _points_of_ply(path: Path) -> int:
    """From the header; 0 where there is none."""
    match = re.match(rb"ply\s[^\0]*?element vertex (\d{1,10})\s", read_start(path, 1 << 12))
    if match is None:
        return 0
    return int(match[1])


def _size_of_png(folder: Path, name: str) -> tuple[int, int, int]:
    """Width, height and channels from the first block of a PNG (RFC 2083, section 4.1.1)."""
    path = folder / name
    if not path.suffix:
        path = path.with_name(f"{path.name}.png")
    start = read_start(path, 26)
    if start[12:16] != b"IHDR":
        raise ValueError(f"{path} is no PNG")
    width, height, _, colour = struct.unpack(">IIBB", start[16:26])
    return width, height, 3 + bool(colour & 4)
