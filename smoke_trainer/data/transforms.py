"""Reads Blender (transforms_train/test.json) and nerfstudio (transforms.json) scenes."""

from __future__ import annotations

import contextlib
import json
import math
from collections import ChainMap
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List, Mapping, Optional

import numpy as np

from smoke_trainer.data.camera import Array, Camera, Distortion, unsupported
from smoke_trainer.data.files import content_of, is_file
from smoke_trainer.data.images import image_size
from smoke_trainer.data.scene import Reconstruction, RegisteredImage
from smoke_trainer.errors import Damage
from smoke_trainer.ply import read_points

# Camera-to-world matrices have OpenGL axes here (y up, z back); ours have y down, z forward.
FLIP = np.diag([1.0, -1.0, -1.0, 1.0])
IMAGE_SUFFIXES = ("", ".png", ".jpg", ".jpeg")
PINHOLE_MODELS = ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL")
MAX_JSON = 32 << 20  # bytes


def read_transforms(root: Path, layout: str) -> Reconstruction:
    """Read a scene: cameras for all frames or per frame, and points (optional) that training starts from.

    Of layout `nerfstudio` transforms.json; of `blender` transforms_train.json trains, and transforms_test.json is held out.
    """
    files: Dict[str, Optional[bool]] = {"transforms.json": None}
    cloud = "sparse_pc.ply"
    if layout == "blender":
        files = {"transforms_train.json": False, "transforms_test.json": True}
        cloud = "points3d.ply"
    images: List[RegisteredImage] = []
    notes: List[str] = []
    for name, held_out in files.items():
        path = root / name
        content = content_of(path)
        if len(content) > MAX_JSON:
            raise Damage(path, f"has more than {MAX_JSON} bytes")
        try:
            document = json.loads(bytes(content).decode())
            frames = [ChainMap(dict(frame), document) for frame in document["frames"]]
        except (ValueError, RecursionError, KeyError, TypeError):
            raise Damage(path, "is no JSON with a list of frames") from None
        for frame in frames:
            try:
                image = _image(root, path, frame, held_out, notes)
            except (KeyError, ValueError, TypeError, ArithmeticError, np.linalg.LinAlgError):
                stated = frame.get("file_path")
                raise Damage(path, f"states no usable pose, size or focal length for {stated!r}") from None
            if image is not None:
                images.append(image)
    cloud = str(document.get("ply_file_path", cloud))
    points = None
    if is_file(root / cloud):
        points = read_points(root / cloud)
    return Reconstruction(layout, tuple(images), points, tuple(notes))


def _image(
    root: Path, path: Path, frame: Mapping[str, Any], held_out: Optional[bool], notes: List[str]
) -> Optional[RegisteredImage]:
    """One frame with what the document states for all; None, with a note, for one whose image is not there."""
    stated = str(frame.get("file_path", ""))
    # NeRF's own files leave the ending out.
    candidates = (root / (stated + suffix) for suffix in IMAGE_SUFFIXES)
    file = next(filter(is_file, candidates), None)
    relative = PurePosixPath(stated)
    if file is not None:
        relative = PurePosixPath(file.as_posix())
        with contextlib.suppress(ValueError):  # a transforms file may also state absolute paths elsewhere
            relative = PurePosixPath(file.relative_to(root).as_posix())
    # A frame whose file is absent may still have a smaller prepared copy; its size must then be stated.
    if not stated or (file is None and "w" not in frame):
        notes.append(f"image {stated or '(unnamed)'} is not on disk; left out")
        return None
    mask: Optional[Path] = None
    if frame.get("mask_path"):
        mask = root / str(frame["mask_path"])
        if not is_file(mask):
            notes.append(f"the mask {frame['mask_path']} of {stated} is not on disk: the whole image is used")
            mask = None
    camera, pose = _camera(path, frame, file), _pose(frame["transform_matrix"])
    return RegisteredImage(str(relative), relative, camera, pose, mask, held_out)


def _pose(matrix: Any) -> Array:
    """World-to-camera from a camera-to-world matrix in OpenGL axes; raises ValueError and others for what is none."""
    pose = np.array(matrix, dtype=np.float64)
    if pose.shape == (3, 4):
        pose = np.vstack([pose, [0.0, 0.0, 0.0, 1.0]])
    if pose.shape != (4, 4) or not np.isfinite(pose).all():
        raise ValueError
    # Exporters may scale the axes; a pose is a rotation, so they are normalised.
    lengths = np.linalg.norm(pose[:3, :3], axis=0, keepdims=True)
    if lengths.min() < 1e-9:
        raise ValueError
    pose[:3, :3] /= lengths
    inverse = np.linalg.inv(pose @ FLIP)
    if not np.isfinite(inverse).all():
        raise ValueError
    return np.asarray(inverse)


def _camera(path: Path, values: Mapping[str, Any], file: Optional[Path]) -> Camera:
    """Intrinsics from fl_x... or camera_angle_x; the image's own size if none is stated. Raises as `_pose`."""
    model = values.get("camera_model", "OPENCV")
    if values.get("is_fisheye"):
        model = "FISHEYE"
    if model not in PINHOLE_MODELS or values.get("k4"):
        raise unsupported(path, model)
    if file is None or ("w" in values and "h" in values):
        width, height = int(values["w"]), int(values["h"])
    else:
        width, height = image_size(file)
    if "fl_x" in values:
        fx = float(values["fl_x"])
    else:
        fx = 0.5 * width / math.tan(0.5 * float(values["camera_angle_x"]))
    fy = float(values.get("fl_y", fx))
    cx, cy = float(values.get("cx", width / 2)), float(values.get("cy", height / 2))
    lens = Distortion(*(float(values.get(key, 0.0)) for key in ("k1", "k2", "p1", "p2", "k3")))
    return Camera(width, height, fx, fy, cx, cy, lens)
