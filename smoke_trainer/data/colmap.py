"""Makes scenes of COLMAP models: cameras and lenses, images with poses, points."""

from __future__ import annotations

from array import array
from pathlib import Path, PurePosixPath
from typing import Dict, List, Sequence

import numpy as np

from smoke_trainer.data import colmap_files as rows
from smoke_trainer.data.camera import Array, Camera, Distortion, unsupported
from smoke_trainer.data.files import is_file
from smoke_trainer.data.scene import PointCloud, Reconstruction, RegisteredImage
from smoke_trainer.errors import Damage, SceneError

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
    path = folder / f"cameras{suffix}"
    for number, model, width, height, parameters, _ in rows.read_cameras(path):
        cameras[number] = camera_from_parameters(model, width, height, parameters, path)
    images: List[RegisteredImage] = []
    notes: List[str] = []
    for name, camera, numbers, _ in rows.read_images(folder / f"images{suffix}"):
        pose = pose_from(numbers)
        if camera not in cameras or not (np.abs(pose) < MAX_COORDINATE).all():
            notes.append(f"image {name} lacks its camera ({camera}) or has an impossible pose; left out")
            continue
        mask = next((m for m in (root / "masks" / name, root / "masks" / f"{name}.png") if is_file(m)), None)
        images.append(RegisteredImage(name, PurePosixPath("images", name), cameras[camera], pose, mask))
    positions, colors = array("d"), array("B")
    for _, x, y, z, red, green, blue in rows.read_points(folder / f"points3D{suffix}"):
        positions.extend((x, y, z))
        colors.extend((red, green, blue))
    xyz, rgb = np.asarray(positions).reshape(-1, 3), np.asarray(colors).reshape(-1, 3)
    finite = (np.abs(xyz) < MAX_COORDINATE).all(axis=1)
    if not finite.all():
        notes.append(f"{int((~finite).sum())} points without finite coordinates are left out")
    points = PointCloud(xyz[finite].astype(np.float32), rgb[finite])
    return Reconstruction(layout, tuple(images), points, tuple(notes))


def camera_from_parameters(model: str, width: int, height: int, p: Sequence[float], where: Path) -> Camera:
    """A COLMAP camera, or a SceneError for models that are not undistorted here and impossible numbers."""
    if model not in PARAMETERS:
        raise unsupported(where, model)
    try:
        if len(p) != PARAMETERS[model]:
            raise ValueError
        if model not in ("PINHOLE", "OPENCV"):
            p = [p[0], *p]  # one focal length for both sides
        # RADIAL gives k1 k2, OPENCV gives k1 k2 p1 p2: the order of Distortion's own fields.
        fx, fy, cx, cy, *bends = p
        return Camera(width, height, fx, fy, cx, cy, Distortion(*bends))
    except ValueError:
        raise Damage(where, f"states an impossible camera: {model} {width}x{height} {list(p)}") from None


def pose_from(numbers: Sequence[float]) -> Array:
    """The pose [4, 4] of a quaternion (w, x, y, z), normalised first, and a translation; NaN where the quaternion is none."""
    q, pose = np.array(numbers[:4]), np.eye(4)
    with np.errstate(over="ignore"):  # a huge number gives an infinite norm
        norm = float(np.linalg.norm(q))
    if not 1e-8 < norm < MAX_COORDINATE:
        return np.full((4, 4), np.nan)
    w, x, y, z = q / norm
    pose[:3, :3] = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    pose[:3, 3] = numbers[4:]
    return pose
