"""Makes scenes of COLMAP models: cameras and lenses, images with poses, points."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Dict, List, Tuple

import numpy as np

from smoke_trainer.data import colmap_files as rows
from smoke_trainer.data.camera import Camera, Distortion
from smoke_trainer.data.files import MAX_IMAGES, MAX_POINTS, is_file
from smoke_trainer.data.scene import PointCloud, Reconstruction, RegisteredImage
from smoke_trainer.errors import SceneError

Array = np.ndarray

# Name: number of parameters. The rest need COLMAP's own undistorter.
PARAMETERS = dict(rows.MODELS[number] for number in range(5))
MAX_COORDINATE = 1e15  # its square still is a float32


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
    """Read the model below `root`; raises SceneError, with the file's name, for anything damaged, and OSError."""
    folder = find_model(root)
    # COLMAP itself prefers the binary files where both lie there.
    layout, suffix = "colmap-text", ".txt"
    if is_file(folder / "images.bin"):
        layout, suffix = "colmap-binary", ".bin"
    cameras: Dict[int, Camera] = {}
    where = folder / f"cameras{suffix}"
    for number, model, width, height, parameters, _ in rows.read_cameras(where, MAX_IMAGES):
        cameras[number] = camera_from_parameters(model, width, height, list(parameters), where)
    images, notes = _read_images(folder / f"images{suffix}", cameras, root)
    xyz, rgb = read_points(folder / f"points3D{suffix}")
    finite = (np.abs(xyz) < MAX_COORDINATE).all(axis=1)
    if not finite.all():
        notes.append(f"{int((~finite).sum())} points without finite coordinates are left out")
    points = PointCloud(xyz[finite].astype(np.float32), rgb[finite])
    return Reconstruction(layout, tuple(images), points, tuple(notes))


def camera_from_parameters(model: str, width: int, height: int, p: List[float], where: Path) -> Camera:
    """A COLMAP camera, or a SceneError for models that are not undistorted here and impossible numbers."""
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
    if len(p) != PARAMETERS[model]:
        raise impossible
    if model not in ("PINHOLE", "OPENCV"):
        p = [p[0], *p]  # one focal length for both sides
    # RADIAL gives k1 k2, OPENCV gives k1 k2 p1 p2: the order of Distortion's own fields.
    fx, fy, cx, cy, *bends = p
    camera = Camera(width, height, fx, fy, cx, cy, Distortion(*bends))
    if not camera.is_possible:
        raise impossible
    return camera


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


def _read_images(
    path: Path, cameras: Dict[int, Camera], root: Path
) -> Tuple[List[RegisteredImage], List[str]]:
    """Read the images, and notes on those that are left out."""
    images, notes = [], []
    for name, camera_id, numbers, _ in rows.read_images(path, MAX_IMAGES):
        if camera_id not in cameras:
            notes.append(f"image {name} refers to camera {camera_id}, which is not in the model; left out")
            continue
        q, t = np.array(numbers[:4]), np.array(numbers[4:])
        if not (np.abs(t) < MAX_COORDINATE).all():
            notes.append(f"image {name} has a position that is not a number; left out")
            continue
        pose = np.eye(4)
        pose[:3, :3] = rotation_from_quaternion(q, path)
        pose[:3, 3] = t
        mask = next((m for m in (root / "masks" / name, root / "masks" / f"{name}.png") if is_file(m)), None)
        images.append(RegisteredImage(name, "images", name, cameras[camera_id], pose, mask))
    return images, notes


def read_points(path: Path) -> Tuple[Array, Array]:
    """Read positions [N, 3] float64 and colours [N, 3] uint8."""
    xyz, rgb = array("d"), array("B")
    for _, x, y, z, red, green, blue in rows.read_points(path, MAX_POINTS):
        xyz.extend((x, y, z))
        rgb.extend((red, green, blue))
    return np.asarray(xyz).reshape(-1, 3), np.asarray(rgb).reshape(-1, 3)
