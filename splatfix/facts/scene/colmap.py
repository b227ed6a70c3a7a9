"""COLMAP models, binary and text, as its documentation "Output Format" has them. Some keypoints are read, and no tracks.

COLMAP 4 adds rigs and frames beside the three files that are read here; images.bin keeps its form.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from splatfix.core.reading import is_regular_file, read_blocks, read_start
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
SAMPLED = 50_000
_MOST_IMAGES, _MOST_POINTS = 100_000, 10_000_000
"""Of a city; trainers take some thousand photos, and some million points."""
_MOST_COUNTED = 1 << 30
_LONGEST_LINE = 1 << 12
_CAMERA = struct.Struct("<iiQQ")
_IMAGE = struct.Struct("<i7di")
_POINT = struct.Struct("<Q3d3Bd")
_KEYPOINT = struct.Struct("<2dq")
_KEYPOINTS, _MOST_KEYPOINTS = 200, 400_000
"""Of an image that are read, and of all images."""


class Damaged(Exception):
    """A file that is no part of a model, or not a whole one; the message says why, without a full stop."""


def read_cameras(folder: Path, suffix: str) -> dict[int, Camera]:
    """Cameras by number.

    Raises:
        Damaged: the file cannot be read to its end.
        OSError: it cannot be opened.
    """
    path = folder / f"cameras{suffix}"
    if suffix == ".txt":
        return _cameras_of_text(path)
    cameras = {}
    with _Content(path) as content:
        for _ in range(_at_most(_MOST_IMAGES, content.count(_CAMERA.size), path)):
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
    """Images with their poses, in the file's order.

    Args:
        photos: the folder of the photos, below the scene's.
        keypoints: of all images that are read at most.

    Raises:
        Damaged: the file cannot be read to its end.
        OSError: it cannot be opened.
    """
    path = folder / f"images{suffix}"
    rows = _images_of_text if suffix == ".txt" else _images_of_binary
    images: list[SceneImage] = []
    for name, camera, numbers, seen in rows(path, keypoints):
        pose = pose_of(numbers[:4], numbers[4:])
        where = str(PurePosixPath(photos, name))
        images.append(SceneImage(name, where, cameras.get(camera), pose, keypoints=seen))
        _at_most(_MOST_IMAGES, len(images), path)
    return images


def pose_of(quaternion: tuple[float, ...], translation: tuple[float, ...]) -> Pose | None:
    """A pose of a quaternion (w, x, y, z) and a translation; None where the numbers make none."""
    if not all(abs(number) < FARTHEST for number in (*quaternion, *translation)):
        return None
    length = math.hypot(*quaternion)
    if length < 1e-8:
        return None
    w, x, y, z = (value / length for value in quaternion)
    rotation = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    right, down, forward = translation
    return Pose(rotation, (right, down, forward))


def read_points(folder: Path, suffix: str) -> Points:
    """The number of points, and the first of them.

    Raises:
        Damaged: the file cannot be read as far as the sample reaches.
        OSError: it cannot be opened.
    """
    path = folder / f"points3D{suffix}"
    sample: list[Vector] = []
    numbers: list[int] = []
    colours = set()
    if suffix == ".txt":
        count = 0
        for line in _lines(path):
            count = _at_most(_MOST_POINTS, count + 1, path)
            if count > SAMPLED:
                continue
            columns = line.split(maxsplit=7)
            try:
                x, y, z = (bounded(float(column)) for column in columns[1:4])
                numbers.append(int(columns[0]))
            except ValueError:
                raise _damaged_line(path, line) from None
            sample.append((x, y, z))
            colours.add(tuple(columns[4:7]))
        return Points(count, tuple(sample), len(colours), tuple(numbers))
    with _Content(path) as content:
        count = content.count(_POINT.size + 8)
        for _ in range(min(count, SAMPLED)):
            number, x, y, z, red, green, blue, _ = content.take(_POINT)
            sample.append((bounded(x), bounded(y), bounded(z)))
            numbers.append(number)
            colours.add((red, green, blue))
            content.skip(8 * content.count(8))
    return Points(count, tuple(sample), len(colours), tuple(numbers))


def points_of_ply(path: Path) -> int | None:
    """The number of vertices in the header of a PLY file; None where there is none."""
    header = read_start(path, _LONGEST_LINE)
    if not header.startswith(b"ply"):
        return None
    for line in header.split(b"\n"):
        fields = line.split()
        if fields[:2] == [b"element", b"vertex"] and len(fields) == 3 and fields[2].isdigit():
            return int(fields[2]) if len(fields[2]) < 20 else None  # more than any file has
    return None


class _Content:
    """A binary file, from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def __enter__(self) -> _Content:
        if not is_regular_file(self._path):
            raise Damaged(f"{self._path.name} is no file")
        with self._path.open("rb") as file:
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
        end = self._bytes.find(b"\0", self._offset, self._offset + _LONGEST_LINE)
        if end < 0:
            raise Damaged(f"{self._path.name} has a name without an end at byte {self._offset}")
        text = self._bytes[self._offset : end].decode("utf-8", "replace")
        self._offset = end + 1
        return text

    def _need(self, size: int) -> None:
        if self._offset + size > len(self._bytes):
            size_of_file = len(self._bytes)
            raise Damaged(f"{self._path.name} ends too early, after {size_of_file} bytes")


ImageRow = tuple[str, int, tuple[float, ...], tuple[Keypoint, ...]]
"""Name, number of the camera, four numbers of a rotation and three of a translation, some keypoints."""


def _at_most(most: int, number: int, path: Path) -> int:
    """Return the number.

    Raises:
        Damaged: it is larger than that.
    """
    if number > most:
        raise Damaged(f"{path.name} has more than {most:,} entries, the most that are read")
    return number


def _images_of_binary(path: Path, most: int) -> Iterator[ImageRow]:
    with _Content(path) as content:
        for _ in range(content.count(_IMAGE.size + 9)):
            _, *numbers, camera = content.take(_IMAGE)
            name, seen = content.name(), content.keypoints(most)
            most -= len(seen)
            yield name, camera, tuple(numbers), seen


def _images_of_text(path: Path, most: int) -> Iterator[ImageRow]:
    lines = _lines(path, blank=True)
    for line in lines:
        keypoints = next(lines, "")
        if not line.strip():
            continue
        columns = line.split(maxsplit=9)
        try:
            numbers = tuple(float(column) for column in columns[1:8])
            name, camera = columns[9].rstrip("\r"), int(columns[8])
            # the line's end was left out; those without a point have -1
            columns = keypoints.split()[:-1] if most > 0 else []
            triples = zip(columns[0::3], columns[1::3], columns[2::3], strict=False)
            seen = tuple((float(x), float(y), int(number)) for x, y, number in triples if number != "-1")
        except (ValueError, IndexError):
            raise _damaged_line(path, line) from None
        most -= len(seen)
        yield name, camera, numbers, seen


def _cameras_of_text(path: Path) -> dict[int, Camera]:
    cameras = {}
    for line in _lines(path):
        columns = line.split()
        try:
            number, width, height = int(columns[0]), int(columns[2]), int(columns[3])
            parameters = tuple(float(column) for column in columns[4:])
        except (ValueError, IndexError):
            raise _damaged_line(path, line) from None
        if len(parameters) != _PARAMETERS.get(columns[1], len(parameters)):
            raise _damaged_line(path, line)
        cameras[number] = Camera.stated(columns[1], width, height, parameters)
        _at_most(_MOST_IMAGES, len(cameras), path)
    return cameras


def _damaged_line(path: Path, line: str) -> Damaged:
    return Damaged(f"{path.name} has a line that is none of COLMAP's: {line[:60]!r}")


def _lines(path: Path, *, blank: bool = False) -> Iterator[str]:
    """Lines without comments; ``blank``: empty ones too, for a photo may have no points."""
    rest = b""
    for block in read_blocks(path, _MOST_COUNTED):
        first, *lines = block.split(b"\n")
        # of a line nobody needs more: keypoints are long, and one without an end would take all memory
        rest = (rest + first)[:_LONGEST_LINE]
        for line in lines:
            if _counts(rest, blank):
                yield rest.decode("utf-8", "replace")
            rest = line[:_LONGEST_LINE]
    if rest.strip() and _counts(rest, blank):
        yield rest.decode("utf-8", "replace")


def _counts(line: bytes, blank: bool) -> bool:
    return not line.startswith(b"#") and (blank or bool(line.strip()))
