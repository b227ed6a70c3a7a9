"""COLMAP models, as the trainer's own reader has their rows: some keypoints and points, and no tracks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath

import smoke_trainer.data.colmap_files as rows
from smoke_trainer.errors import Damage
from splatfix.core.reading import is_regular_file, read_start
from splatfix.facts.scene.model import FARTHEST, Camera, Points, Pose, SceneImage, bounded

PARTS = ("cameras", "images", "points3D")
MODELS = rows.MODELS
_PARAMETERS = dict(MODELS.values())
_SAMPLED = 50_000
_MOST_KEYPOINTS = 400_000  # of all images


class Damaged(Exception):
    """A file that is no part of a model, or not a whole one; the message says why, without a full stop."""


def read_cameras(folder: Path, suffix: str) -> dict[int, Camera]:
    """Return the cameras by number.

    Raises:
        Damaged: the file cannot be read to its end.
        OSError: it cannot be opened.
    """
    cameras: dict[int, Camera] = {}
    with _told(folder / f"cameras{suffix}") as path:
        for number, model, width, height, parameters, line in rows.read_cameras(path):
            if len(parameters) != _PARAMETERS.get(model, len(parameters)):
                raise Damaged(f"{path.name} has a line that is none of COLMAP's: {line[:60]!r}")
            cameras[number] = Camera.stated(model, width, height, parameters)
    return cameras


def read_images(
    folder: Path, suffix: str, cameras: dict[int, Camera], photos: str, keypoints: int = _MOST_KEYPOINTS
) -> list[SceneImage]:
    """Return the images with their poses, in the file's order.

    Args:
        photos: the folder of the photos, below the scene's.
        keypoints: of all images that are read at most.

    Raises:
        Damaged: the file cannot be read to its end.
        OSError: it cannot be opened.
    """
    images = []
    with _told(folder / f"images{suffix}") as path:
        for name, camera, numbers, seen in rows.read_images(path, keypoints=keypoints):
            where = str(PurePosixPath(photos, name))
            images.append(SceneImage(name, where, cameras.get(camera), _pose(numbers), keypoints=seen))
    return images


def _pose(numbers: tuple[float, ...]) -> Pose | None:
    """The pose of a quaternion (w, x, y, z) and a translation; None where the numbers make none."""
    length = math.hypot(*numbers[:4])
    if not all(abs(number) < FARTHEST for number in numbers) or length < 1e-8:
        return None
    w, x, y, z = (value / length for value in numbers[:4])
    rotation = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    right, down, forward = numbers[4:]
    return Pose(rotation, (right, down, forward))


def read_points(folder: Path, suffix: str) -> Points:
    """Return the number of points, and the first of them.

    Raises:
        Damaged: the file cannot be read as far as the sample reaches.
        OSError: it cannot be opened.
    """
    with _told(folder / f"points3D{suffix}") as path:
        count = rows.count_points(path)
        points = list(islice(rows.read_points(path), _SAMPLED))
    sample = tuple((bounded(x), bounded(y), bounded(z)) for _, x, y, z, *_ in points)
    colours = {point[4:] for point in points}
    return Points(count, sample, len(colours), tuple(point[0] for point in points))


@contextmanager
def _told(path: Path) -> Iterator[Path]:
    """Return the path of a file of which Damaged tells what is wrong."""
    if not is_regular_file(path):
        raise Damaged(f"{path.name} is no file")
    try:
        yield path
    except Damage as damage:
        line = f": {damage.line!r}" if damage.line else ""
        raise Damaged(f"{path.name} {damage.fault}{line}") from None


def points_of_ply(path: Path) -> int | None:
    """Return the number of vertices in the header of a PLY file; None where there is none."""
    header = read_start(path, 1 << 12)
    vertices = re.search(rb"^element[ \t]+vertex[ \t]+([0-9]{1,19})[ \t\r]*$", header, re.MULTILINE)
    return int(vertices[1]) if vertices and header.startswith(b"ply") else None
