"""Reads the files of COLMAP models, binary and text, row by row, for the trainer and for `splatfix scenes check`.

Formats: COLMAP's documentation "Output Format". COLMAP 4.x adds rigs and frames files beside the three that are read
here; images.bin keeps its form, so both generations are read alike. No NumPy: splatfix reads where there is none.
"""

from __future__ import annotations

import struct
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, Callable, Iterator, Tuple, TypeVar

from smoke_trainer.data.files import content_of, lines_of
from smoke_trainer.errors import Damage

# Number in cameras.bin: (name, number of parameters). From COLMAP's src/colmap/sensor/models.h.
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
LFS_POINTER = b"version https://git-lfs"  # how the stand-in of a file in Git LFS begins (its docs/spec.md)
_SAMPLED = 200  # keypoints of one image
_CAMERA, _IMAGE = struct.Struct("<IiQQ"), struct.Struct("<I7dI")
_POINT, _KEYPOINT, _COUNT = struct.Struct("<Q3d3Bd"), struct.Struct("<2dq"), struct.Struct("<Q")

Row = TypeVar("Row")
CameraRow = Tuple[int, str, int, int, Tuple[float, ...], str]
"""Number, model, width, height, parameters (in text as many as stand there), the line of a text file."""
Keypoint = Tuple[float, float, int]  # column and row in pixels, number of its point
ImageRow = Tuple[str, int, Tuple[float, ...], Tuple[Keypoint, ...]]
"""Name, number of the camera, pose (world to camera: a quaternion w, x, y, z, then a translation), keypoints."""
PointRow = Tuple[int, float, float, float, int, int, int]  # number or -1, position, colour


def read_cameras(path: Path) -> Iterator[CameraRow]:
    """Read cameras; one of an unknown model is a binary file's last, for nothing says where the next one begins.

    Raises:
        OSError: it cannot be opened.
        Damage: it is no regular file, not COLMAP's, or not whole.
    """
    if path.suffix == ".txt":
        yield from _parsed(path, _camera)
        return
    content = _Content(path)
    for _ in range(content.count(_CAMERA.size)):
        number, kind, width, height = content.take(_CAMERA)
        name, parameters = MODELS.get(kind, (f"number {kind}", 0))
        yield number, name, width, height, content.take(struct.Struct(f"<{parameters}d")), ""
        if kind not in MODELS:
            break


def read_images(path: Path, keypoints: int = 0) -> Iterator[ImageRow]:
    """Read images, each with some keypoints that have a point, until `keypoints` of all; raises as :func:`read_cameras`."""
    if path.suffix == ".txt":

        def image(line: str, seen: str) -> ImageRow:
            columns = line.split(maxsplit=9)
            words = seen.split(maxsplit=3 * _SAMPLED)[: 3 * _SAMPLED] if keypoints > 0 else []
            # those without a point have -1
            triples = (triple for triple in zip(words[0::3], words[1::3], words[2::3]) if triple[2] != "-1")
            found = tuple((float(x), float(y), int(point)) for x, y, point in triples)
            return columns[9], int(columns[8]), tuple(map(float, columns[1:8])), found

        for row in _parsed(path, image, lines=2):
            keypoints -= len(row[3])
            yield row
        return
    content = _Content(path)
    for _ in range(content.count(_IMAGE.size + 9)):
        _, *pose, camera = content.take(_IMAGE)
        name, seen = content.name(), content.keypoints(keypoints)
        keypoints -= len(seen)
        yield name, camera, tuple(pose), seen


def read_points(path: Path) -> Iterator[PointRow]:
    """Read points without their tracks; raises as :func:`read_cameras`."""
    if path.suffix == ".txt":
        yield from _parsed(path, _point)
        return
    content = _Content(path)
    for _ in range(content.count(_POINT.size + 8)):
        number, x, y, z, red, green, blue, _ = content.take(_POINT)
        content.skip(8 * content.count(8))
        yield number, x, y, z, red, green, blue


def count_points(path: Path) -> int:
    """Return how many points there are, of which none is read; raises as :func:`read_cameras`."""
    if path.suffix == ".txt":
        return sum(line[:1] not in ("", "#") for line in lines_of(path))
    return _Content(path).count(_POINT.size + 8)


def _parsed(path: Path, parse: Callable[..., Row], lines: int = 1) -> Iterator[Row]:
    """Parse rows of so many lines without comments, those that do not begin with an empty line."""
    kept = (line for line in lines_of(path) if not line.startswith("#"))
    for row in filter(itemgetter(0), zip_longest(*[kept] * lines, fillvalue="")):
        try:
            yield parse(*row)
        except (ValueError, IndexError):
            raise Damage(path, "has a line that is none of COLMAP's", row[0]) from None


def _camera(line: str) -> CameraRow:
    number, model, width, height, *parameters = line.split()
    return int(number), model, int(width), int(height), tuple(map(float, parameters)), line


def _point(line: str) -> PointRow:
    columns = line.split(maxsplit=7)
    x, y, z = map(float, columns[1:4])
    red, green, blue = [min(max(int(column), 0), 255) for column in columns[4:7]]
    number = int(columns[0]) if columns[0].isdecimal() else -1
    return number, x, y, z, red, green, blue


class _Content:
    """A binary file, from its beginning to its end; Damage where it is too short for what is asked of it."""

    def __init__(self, path: Path) -> None:
        self.path, self.data, self.at = path, content_of(path), 0

    def skip(self, size: int) -> int:
        """Pass over so many bytes; returns where they begin."""
        start, end = self.at, len(self.data)
        if start + size > end:
            fault = f"ends too early, after {end} bytes"
            if not end:
                fault = "is empty"
            elif self.data[: len(LFS_POINTER)] == LFS_POINTER:
                fault = "is a Git LFS pointer (download it with git lfs pull)"
            raise Damage(self.path, fault)
        self.at += size
        return start

    def take(self, form: struct.Struct) -> Tuple[Any, ...]:
        return form.unpack_from(self.data, self.skip(form.size))

    def count(self, size: int) -> int:
        """Return a number of records of at least so many bytes each."""
        (number,) = self.take(_COUNT)
        self.at = self.skip(number * size)
        return int(number)

    def name(self) -> str:
        """Return a name that ends with a zero."""
        end = self.data.find(b"\0", self.at, self.at + 4097)
        if end < 0:
            raise Damage(self.path, f"has a name without an end at byte {self.at}")
        start = self.skip(end + 1 - self.at)
        return self.data[start:end].decode("utf-8", "replace")

    def keypoints(self, most: int) -> Tuple[Keypoint, ...]:
        """Return some of an image's keypoints that have a point; all are passed over."""
        count = self.count(_KEYPOINT.size)
        first = self.skip(count * _KEYPOINT.size)
        sampled = range(0, count, max(1, count // min(_SAMPLED, most))) if most > 0 else ()
        rows = (_KEYPOINT.unpack_from(self.data, first + _KEYPOINT.size * row) for row in sampled)
        return tuple((column, row, point) for column, row, point in rows if point >= 0)
