"""COLMAP models, binary and text, as its documentation "Output Format" has them. Some keypoints are read, and no tracks.

COLMAP 4 adds rigs and frames beside the three files that are read here; images.bin keeps its form.
"""

from __future__ import annotations

import io
import math
import mmap
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from splatfix.core.reading import is_regular_file, read_start
from splatfix.facts.scene.model import FARTHEST, Camera, Keypoint, Points, Pose, SceneImage, Vector, bounded
from splatfix.facts.scene.photos import LFS_POINTER

MODELS = {
    0: ("SIMPLE_PINHOLE", 3),
    1: ("PINHOLE", 4),
    2: ("SIMPLE_RADIAL", 4),
    3: ("RADIAL", 5),
    4: ("OPENCV", 8),
    5: ("OPENCV_FISHEYE", 8),
    6: ("FULL_OPENCV", 12),
    7: ("FOV", 5),
    8: ("SIMPLE_RADIAL_FISHEYE", 4),
    9: ("RADIAL_FISHEYE", 5),
    10: ("THIN_PRISM_FISHEYE", 12),
}
"""COLMAP's camera models by their number in cameras.bin: name, and number of parameters (COLMAP, src/colmap/sensor/models.h)."""
_PARAMETERS = dict(MODELS.values())
PARTS = ("cameras", "images", "points3D")
_SAMPLED = 50_000
_LONGEST_NAME = 1 << 12
_CAMERA, _IMAGE = struct.Struct("<iiQQ"), struct.Struct("<i7di")
_POINT, _KEYPOINT = struct.Struct("<Q3d3Bd"), struct.Struct("<2dq")
_KEYPOINTS, _MOST_KEYPOINTS = 200, 400_000
"""Of an image that are read, and of all images."""
ImageRow = tuple[str, int, tuple[float, ...], tuple[Keypoint, ...]]
"""Name, number of the camera, four numbers of a rotation and three of a translation, some keypoints."""


class Damaged(Exception):
    """A file that is no part of a model, or not a whole one; the message says why, without a full stop."""


def read_cameras(folder: Path, suffix: str) -> dict[int, Camera]:
    """Return the cameras by number.

    Raises:
        Damaged: the file cannot be read to its end.
        OSError: it cannot be opened.
    """
    path = folder / f"cameras{suffix}"
    cameras: dict[int, Camera] = {}
    if suffix == ".txt":
        for line in _lines(path):
            with _whole(path, line):
                number, name, width, height, *words = line.split()
                values = tuple(map(float, words))
                if len(values) != _PARAMETERS.get(name, len(values)):
                    raise ValueError
                cameras[int(number)] = Camera.stated(name, int(width), int(height), values)
        return cameras
    with _Content(path) as content:
        for _ in range(content.count(_CAMERA.size)):
            number, kind, width, height = content.take(_CAMERA)
            if kind not in MODELS:
                # how long its parameters are is not known, nor where the next camera begins
                cameras[number] = Camera(f"number {kind}", width, height, ())
                break
            name, parameters = MODELS[kind]
            values = content.take(struct.Struct(f"<{parameters}d"))
            cameras[number] = Camera.stated(name, width, height, values)
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
    rows = _images_of_text if suffix == ".txt" else _images_of_binary
    images = []
    for name, camera, numbers, seen in rows(folder / f"images{suffix}", keypoints):
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
    path = folder / f"points3D{suffix}"
    sample: list[Vector] = []
    numbers: list[int] = []
    colours = set()
    count = 0
    if suffix == ".txt":
        for count, line in enumerate(_lines(path), start=1):
            if count <= _SAMPLED:
                with _whole(path, line):
                    number, x, y, z, *rest = line.split(maxsplit=7)
                    sample.append((bounded(float(x)), bounded(float(y)), bounded(float(z))))
                    numbers.append(int(number))
                    colours.add(tuple(rest[:3]))
        return Points(count, tuple(sample), len(colours), tuple(numbers))
    with _Content(path) as content:
        count = content.count(_POINT.size + 8)
        for _ in range(min(count, _SAMPLED)):
            number, x, y, z, red, green, blue, _ = content.take(_POINT)
            sample.append((bounded(x), bounded(y), bounded(z)))
            numbers.append(number)
            colours.add((red, green, blue))
            content.skip(8 * content.count(8))
    return Points(count, tuple(sample), len(colours), tuple(numbers))


def points_of_ply(path: Path) -> int | None:
    """Return the number of vertices in the header of a PLY file; None where there is none."""
    header = read_start(path, 1 << 12)
    vertices = re.search(rb"^element[ \t]+vertex[ \t]+([0-9]{1,19})[ \t\r]*$", header, re.MULTILINE)
    return int(vertices[1]) if vertices and header.startswith(b"ply") else None


class _Content:
    """A binary file, from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def __enter__(self) -> _Content:
        with _opened(self._path) as file:
            if not self._path.stat().st_size:
                raise Damaged(f"{self._path.name} is empty")
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._bytes[: len(LFS_POINTER)] == LFS_POINTER:
            self._bytes.close()
            raise Damaged(f"{self._path.name} is a Git LFS pointer (download it with git lfs pull)")
        return self

    def __exit__(self, *_: object) -> None:
        self._bytes.close()

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        self._need(form.size)
        values = form.unpack_from(self._bytes, self._offset)
        self._offset += form.size
        return values

    def count(self, size: int) -> int:
        """A number of records of at least so many bytes each."""
        (number,) = self.take(struct.Struct("<Q"))
        self._need(number * size)
        return int(number)

    def skip(self, size: int) -> None:
        self._need(size)
        self._offset += size

    def keypoints(self, most: int) -> tuple[Keypoint, ...]:
        """Some of the keypoints of an image, those that have a point; all are passed over."""
        count = self.count(_KEYPOINT.size)
        sampled = range(0, count, max(1, count // min(_KEYPOINTS, most))) if most > 0 else ()
        rows = (_KEYPOINT.unpack_from(self._bytes, self._offset + _KEYPOINT.size * row) for row in sampled)
        keypoints = tuple((column, row, number) for column, row, number in rows if number >= 0)
        self.skip(count * _KEYPOINT.size)
        return keypoints

    def name(self) -> str:
        """A name that ends with a zero."""
        end = self._bytes.find(b"\0", self._offset, self._offset + _LONGEST_NAME)
        if end < 0:
            raise Damaged(f"{self._path.name} has a name without an end at byte {self._offset}")
        text = self._bytes[self._offset : end].decode("utf-8", "replace")
        self._offset = end + 1
        return text

    def _need(self, size: int) -> None:
        if self._offset + size > len(self._bytes):
            raise Damaged(f"{self._path.name} ends too early, after {len(self._bytes)} bytes")


def _images_of_binary(path: Path, most: int) -> Iterator[ImageRow]:
    with _Content(path) as content:
        for _ in range(content.count(_IMAGE.size + 9)):
            _, *numbers, camera = content.take(_IMAGE)
            name, seen = content.name(), content.keypoints(most)
            most -= len(seen)
            yield name, camera, tuple(numbers), seen


def _images_of_text(path: Path, most: int) -> Iterator[ImageRow]:
    lines = _lines(path, blank=True)  # a photo may have no points
    for line in lines:
        keypoints = next(lines, "")
        if line.strip():
            with _whole(path, line):
                columns = line.rstrip("\r\n").split(maxsplit=9)
                name, camera, numbers = columns[9], int(columns[8]), tuple(map(float, columns[1:8]))
                words = keypoints.split()[: 3 * _KEYPOINTS] if most > 0 else []
                triples = zip(words[0::3], words[1::3], words[2::3], strict=False)
                # those without a point have -1
                seen = tuple((float(x), float(y), int(point)) for x, y, point in triples if point != "-1")
            most -= len(seen)
            yield name, camera, numbers, seen


@contextmanager
def _whole(path: Path, line: str) -> Iterator[None]:
    """Tell of a line whose words are not the numbers that it should have."""
    try:
        yield
    except (ValueError, IndexError):
        raise Damaged(f"{path.name} has a line that is none of COLMAP's: {line.rstrip()[:60]!r}") from None


def _lines(path: Path, *, blank: bool = False) -> Iterator[str]:
    """Lines without comments; ``blank``: empty ones too."""
    with _opened(path) as file:
        for line in io.TextIOWrapper(file, "utf-8", "replace", newline="\n"):
            if not line.startswith("#") and (blank or line.strip()):
                yield line


def _opened(path: Path) -> BinaryIO:
    if not is_regular_file(path):
        raise Damaged(f"{path.name} is no file")
    return path.open("rb")
