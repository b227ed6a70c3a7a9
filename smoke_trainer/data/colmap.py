"""Reads COLMAP models, binary and text: cameras, images with poses, points.

Formats: COLMAP's documentation "Output Format". COLMAP 4.x adds rigs and frames files beside the three that are read
here; images.bin keeps its form, so both generations are read alike.
"""

from __future__ import annotations

import struct
from array import array
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np

from smoke_trainer.data.camera import Camera, Distortion
from smoke_trainer.data.files import MAX_IMAGES, MAX_POINTS, content_of, is_file, lines_of, too_large
from smoke_trainer.data.scene import PointCloud, Reconstruction, RegisteredImage
from smoke_trainer.errors import SceneError

Array = np.ndarray

# Model number: (name, number of parameters). From COLMAP's sensor models; the rest need COLMAP's own undistorter.
MODELS: Dict[int, Tuple[str, int]] = {
    0: ("SIMPLE_PINHOLE", 3),
    1: ("PINHOLE", 4),
    2: ("SIMPLE_RADIAL", 4),
    3: ("RADIAL", 5),
    4: ("OPENCV", 8),
}
OTHER_MODELS = {
    5: "OPENCV_FISHEYE",
    6: "FULL_OPENCV",
    7: "FOV",
    8: "SIMPLE_RADIAL_FISHEYE",
    9: "RADIAL_FISHEYE",
}
PARAMETERS = dict(MODELS.values())
MAX_COORDINATE = 1e15  # its square still is a float32

Lens = Tuple[Camera, Distortion]


def find_model(root: Path) -> Path:
    """The folder with the model: sparse/0, sparse, colmap/sparse/0 or sparse/1..., whichever holds one."""
    numbered = sorted(path for path in (root / "sparse").glob("[0-9]*") if path.is_dir())
    for folder in [root / "sparse" / "0", root / "sparse", root / "colmap" / "sparse" / "0", *numbered]:
        if any(is_file(folder / f"images{suffix}") for suffix in (".bin", ".txt")):
            return folder
    raise SceneError(
        f"no COLMAP model below {root / 'sparse'}",
        "neither images.bin nor images.txt was found in sparse/0 or sparse",
        "run the mapper again, or give the folder that contains sparse/",
    )


def read_colmap(root: Path) -> Reconstruction:
    """Read the model below `root`; raises SceneError, with the file's name, for anything damaged."""
    folder = find_model(root)
    # COLMAP itself prefers the binary files where both lie there.
    model_format = TEXT
    if is_file(folder / "images.bin"):
        model_format = BINARY
    paths = [folder / f"{stem}{model_format.suffix}" for stem in ("cameras", "images", "points3D")]
    for path in paths:
        if not is_file(path):
            raise SceneError(
                f"{path} is missing", "a COLMAP model has three files", "copy the whole sparse/0 folder again"
            )
    cameras = model_format.read_cameras(paths[0])
    images, notes = _registered(model_format.read_images(paths[1]), cameras, paths[1], root)
    xyz, rgb = model_format.read_points(paths[2])
    finite = (np.abs(xyz) < MAX_COORDINATE).all(axis=1)
    if not finite.all():
        notes.append(f"{int((~finite).sum())} points without finite coordinates are left out")
    points = PointCloud(xyz[finite].astype(np.float32), rgb[finite])
    return Reconstruction(model_format.layout, tuple(images), points, tuple(notes))


def lens_from_parameters(model: str, width: int, height: int, p: List[float], where: Path) -> Lens:
    """A COLMAP camera as (pinhole, distortion), or a SceneError for models and impossible numbers."""
    if model not in PARAMETERS:
        raise SceneError(
            f"{where} uses the camera model {model}",
            "only PINHOLE, SIMPLE_PINHOLE, SIMPLE_RADIAL, RADIAL and OPENCV can be undistorted here",
            "run `colmap image_undistorter` and train on its output",
        )
    impossible = SceneError(
        f"{where}: impossible camera: {model} {width}x{height} {p}",
        "the file is damaged or truncated",
        "copy or export the COLMAP model again",
    )
    if len(p) != PARAMETERS[model] or not all(np.isfinite(p)):
        raise impossible
    if model in ("PINHOLE", "OPENCV"):
        camera, rest = Camera(width, height, p[0], p[1], p[2], p[3]), p[4:]
    else:
        camera, rest = Camera(width, height, p[0], p[0], p[1], p[2]), p[3:]
    if not camera.is_possible:
        raise impossible
    # RADIAL gives k1 k2, OPENCV gives k1 k2 p1 p2: the order of Distortion's own fields.
    return camera, Distortion(*rest)


def rotation_from_quaternion(q: Array, where: Path) -> Array:
    """Rotation matrix [3, 3] of (w, x, y, z); normalised first."""
    with np.errstate(over="ignore"):  # a huge number gives an infinite norm, rejected below
        norm = float(np.linalg.norm(q))
    if not np.isfinite(norm) or norm < 1e-8:
        raise SceneError(f"{where}: a pose has the impossible rotation {q.tolist()}", "the file is damaged")
    w, x, y, z = q / norm
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


ImageRow = Tuple[str, int, Array, Array]  # name, camera id, quaternion, translation


def _registered(
    rows: List[ImageRow], cameras: Dict[int, Lens], where: Path, root: Path
) -> Tuple[List[RegisteredImage], List[str]]:
    images, notes = [], []
    for name, camera_id, q, t in rows:
        if camera_id not in cameras:
            notes.append(f"image {name} refers to camera {camera_id}, which is not in the model; left out")
            continue
        if not (np.abs(t) < MAX_COORDINATE).all():
            notes.append(f"image {name} has a position that is not a number; left out")
            continue
        pose = np.eye(4)
        pose[:3, :3] = rotation_from_quaternion(q, where)
        pose[:3, 3] = t
        mask = next((m for m in (root / "masks" / name, root / "masks" / f"{name}.png") if is_file(m)), None)
        camera, lens = cameras[camera_id]
        images.append(RegisteredImage(name, "images", camera, pose, lens, mask))
    return images, notes


class _Bytes:
    """A cursor over a binary file; every read raises SceneError if the file is too short."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = content_of(path)
        self.at = 0

    def take(self, layout: str) -> Tuple[Any, ...]:
        size = struct.calcsize(layout)
        self.need(size)
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += size
        return values

    def need(self, size: int) -> None:
        """Raise SceneError unless that many more bytes follow."""
        if size < 0 or self.at + size > len(self.data):
            raise SceneError(
                f"{self.path} ends too early: byte {self.at} needs {size} more bytes, the file has {len(self.data)}",
                "the file is truncated, or is not a COLMAP model",
                "copy or export the COLMAP model again",
            )

    def skip(self, size: int) -> None:
        self.need(size)
        self.at += size

    def name(self) -> str:
        end = self.data.find(b"\0", self.at, self.at + 4097)
        if end < 0:
            raise SceneError(f"{self.path}: unterminated image name at byte {self.at}", "the file is damaged")
        text = self.data[self.at : end].decode("utf-8", errors="replace")
        self.at = end + 1
        return text

    def count(self, at_least: int) -> int:
        """A number of records of at least that many bytes each."""
        (number,) = self.take("<Q")
        self.need(int(number) * at_least)
        return int(number)

    def few(self, at_least: int, most: int, noun: str) -> int:
        """The same; raises SceneError for more than `most`, which would fill the memory."""
        number = self.count(at_least)
        if number > most:
            raise too_large(self.path, f"{most} {noun}")
        return number


def read_cameras_binary(path: Path) -> Dict[int, Lens]:
    """Cameras by id."""
    source = _Bytes(path)
    cameras = {}
    for _ in range(source.few(24, MAX_IMAGES, "cameras")):
        key, model, width, height = source.take("<IiQQ")
        name, count = MODELS.get(model, (OTHER_MODELS.get(model, f"number {model}"), 0))
        cameras[key] = lens_from_parameters(name, width, height, list(source.take(f"<{count}d")), path)
    return cameras


def read_images_binary(path: Path) -> List[ImageRow]:
    """Names, camera ids and poses; keypoints are skipped."""
    source = _Bytes(path)
    rows: List[ImageRow] = []
    for _ in range(source.few(73, MAX_IMAGES, "images")):
        values = source.take("<I7dI")
        name = source.name()
        source.skip(24 * source.count(24))
        rows.append((name, values[8], np.array(values[1:5]), np.array(values[5:8])))
    return rows


def read_points_binary(path: Path) -> Tuple[Array, Array]:
    """Positions [N, 3] float64 and colours [N, 3] uint8; tracks are skipped."""
    source = _Bytes(path)
    number = source.few(51, MAX_POINTS, "points")
    xyz, rgb = np.empty((number, 3)), np.empty((number, 3), dtype=np.uint8)
    for index in range(number):
        values = source.take("<Q3d3Bd")
        xyz[index], rgb[index] = values[1:4], values[4:7]
        source.skip(8 * source.count(8))
    return xyz, rgb


def _lines(path: Path) -> Iterator[str]:
    """Lines without comments; an empty line is kept: it may be an image without keypoints."""
    return (line for line in lines_of(path) if not line.startswith("#"))


def _damaged_line(path: Path) -> SceneError:
    # not what it says: a stranger's scene may have a link to a file of this machine there, and certificates are passed on
    return SceneError(
        f"{path} has a line that cannot be read",
        "the file is damaged or not written by COLMAP",
        "copy or export the COLMAP model again",
    )


def read_cameras_text(path: Path) -> Dict[int, Lens]:
    """Cameras by id."""
    cameras = {}
    for line in filter(None, _lines(path)):
        columns = line.split()
        try:
            key, width, height = int(columns[0]), int(columns[2]), int(columns[3])
            params = [float(column) for column in columns[4:]]
        except (ValueError, IndexError):
            raise _damaged_line(path) from None
        cameras[key] = lens_from_parameters(columns[1], width, height, params, path)
        if len(cameras) > MAX_IMAGES:
            raise too_large(path, f"{MAX_IMAGES} cameras")
    return cameras


def read_images_text(path: Path) -> List[ImageRow]:
    """Names, camera ids and poses; every second line (keypoints) is skipped."""
    rows: List[ImageRow] = []
    for line in islice(_lines(path), 0, None, 2):
        if not line:
            continue
        if len(rows) == MAX_IMAGES:
            raise too_large(path, f"{MAX_IMAGES} images")
        columns = line.split(maxsplit=9)
        try:
            numbers = np.array([float(column) for column in columns[1:8]])
            rows.append((columns[9], int(columns[8]), numbers[:4], numbers[4:]))
        except (ValueError, IndexError):
            raise _damaged_line(path) from None
    return rows


def read_points_text(path: Path) -> Tuple[Array, Array]:
    """Positions [N, 3] float64 and colours [N, 3] uint8."""
    xyz, rgb = array("d"), array("B")
    for line in filter(None, _lines(path)):
        columns = line.split(maxsplit=7)
        try:
            x, y, z = (float(column) for column in columns[1:4])
            colour = [min(max(int(column), 0), 255) for column in columns[4:7]]
        except ValueError:
            raise _damaged_line(path) from None
        if len(colour) != 3:
            raise _damaged_line(path)
        xyz.extend((x, y, z))
        rgb.extend(colour)
        if len(xyz) > 3 * MAX_POINTS:
            raise too_large(path, f"{MAX_POINTS} points")
    return np.array(xyz).reshape(-1, 3), np.array(rgb).reshape(-1, 3)


class ModelFormat(NamedTuple):
    """One of the two forms of a model's files."""

    layout: str
    suffix: str
    read_cameras: Callable[[Path], Dict[int, Lens]]
    read_images: Callable[[Path], List[ImageRow]]
    read_points: Callable[[Path], Tuple[Array, Array]]


BINARY = ModelFormat("colmap-binary", ".bin", read_cameras_binary, read_images_binary, read_points_binary)
TEXT = ModelFormat("colmap-text", ".txt", read_cameras_text, read_images_text, read_points_text)
