"""Writes a rendered scene in the field's layouts: COLMAP binary and text, Blender, nerfstudio."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from smoke_trainer.data.camera import Camera
from tools.scenes.raytrace import Picture
from tools.scenes.recipes import Recipe
from tools.scenes.sfm import Observed

Array = np.ndarray
KeypointRows = list[list[tuple[float, float, int]]]

# COLMAP's numbers for its camera models (src/colmap/sensor/models.h).
PINHOLE_ID, SIMPLE_RADIAL_ID = 1, 2
FLIP = np.diag([1.0, -1.0, -1.0, 1.0])  # OpenCV axes (y down, z forward) to OpenGL axes (y up, z back)


def write_scene(
    recipe: Recipe, pictures: Sequence[Picture], poses: Sequence[Array], points: Observed, root: Path
) -> None:
    """Write images and reconstruction of one recipe below `root` (which must exist)."""
    WRITERS[recipe.layout](recipe, pictures, poses, points, root)


def image_name(index: int) -> str:
    """File names as cameras write them; sorted order is capture order."""
    return f"view_{index:03d}.png"


def quaternion(rotation: Array) -> tuple[float, float, float, float]:
    """(w, x, y, z) of a rotation matrix, by the eigenvector of Bar-Itzhack's symmetric matrix (never divides by zero)."""
    m = rotation
    k = np.array(
        [
            [m[0, 0] - m[1, 1] - m[2, 2], 0.0, 0.0, 0.0],
            [m[0, 1] + m[1, 0], m[1, 1] - m[0, 0] - m[2, 2], 0.0, 0.0],
            [m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], m[2, 2] - m[0, 0] - m[1, 1], 0.0],
            [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1], m[0, 0] + m[1, 1] + m[2, 2]],
        ]
    )
    _, vectors = np.linalg.eigh(k / 3.0)
    x, y, z, w = vectors[:, -1] * (1.0 if vectors[3, -1] >= 0 else -1.0)
    return float(w), float(x), float(y), float(z)


def _save_images(pictures: Sequence[Picture], folder: Path, with_alpha: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for index, picture in enumerate(pictures):
        planes = np.dstack([picture.color, picture.alpha]) if with_alpha else picture.color
        data = np.round(np.clip(planes, 0.0, 1.0) * 255).astype(np.uint8)
        Image.fromarray(data).save(folder / image_name(index), optimize=True)


def _colmap_camera(recipe: Recipe) -> tuple[int, str, list[float]]:
    """(model number, model name, parameters) of the recipe's camera."""
    camera = recipe.camera
    if recipe.distortion.is_zero:
        return PINHOLE_ID, "PINHOLE", [camera.fx, camera.fy, camera.cx, camera.cy]
    return SIMPLE_RADIAL_ID, "SIMPLE_RADIAL", [camera.fx, camera.cx, camera.cy, recipe.distortion.k1]


def _keypoint_rows(
    points: Observed, views: int, scale: float
) -> tuple[list[list[tuple[float, float, int]]], list[list[tuple[int, int]]]]:
    """Keypoints of every view as (x, y, point id), and tracks of every point as (image id, keypoint index)."""
    rows: KeypointRows = [[] for _ in range(views)]
    tracks: list[list[tuple[int, int]]] = []
    for point, track in enumerate(points.tracks):
        tracks.append([])
        for view, x, y in track:
            tracks[-1].append((view + 1, len(rows[view])))
            rows[view].append((x * scale, y * scale, point + 1))
    return rows, tracks


def write_colmap_binary(
    recipe: Recipe, pictures: Sequence[Picture], poses: Sequence[Array], points: Observed, root: Path
) -> None:
    """cameras.bin, images.bin and points3D.bin below sparse/0 (COLMAP 3.x: no rigs.bin, no frames.bin)."""
    _save_images(pictures, root / recipe.image_folder)
    sparse = root / "sparse" / "0"
    sparse.mkdir(parents=True, exist_ok=True)
    rows, tracks = _keypoint_rows(points, len(pictures), recipe.downscale)
    number, _, params = _colmap_camera(recipe)
    with (sparse / "cameras.bin").open("wb") as out:
        out.write(struct.pack("<QIiQQ", 1, 1, number, recipe.camera.width, recipe.camera.height))
        out.write(struct.pack(f"<{len(params)}d", *params))
    with (sparse / "images.bin").open("wb") as out:
        out.write(struct.pack("<Q", len(pictures)))
        for index, pose in enumerate(poses):
            out.write(struct.pack("<I7dI", index + 1, *quaternion(pose[:3, :3]), *pose[:3, 3], 1))
            out.write(image_name(index).encode() + b"\0" + struct.pack("<Q", len(rows[index])))
            out.write(b"".join(struct.pack("<ddq", *row) for row in rows[index]))
    with (sparse / "points3D.bin").open("wb") as out:
        out.write(struct.pack("<Q", len(points.xyz)))
        for index, track in enumerate(tracks):
            head = (
                index + 1,
                *points.xyz[index],
                *points.rgb[index].tolist(),
                points.error[index],
                len(track),
            )
            out.write(struct.pack("<Q3d3BdQ", *head))
            out.write(b"".join(struct.pack("<II", *entry) for entry in track))


def write_colmap_text(
    recipe: Recipe, pictures: Sequence[Picture], poses: Sequence[Array], points: Observed, root: Path
) -> None:
    """cameras.txt, images.txt and points3D.txt below sparse/0."""
    _save_images(pictures, root / recipe.image_folder)
    sparse = root / "sparse" / "0"
    sparse.mkdir(parents=True, exist_ok=True)
    rows, tracks = _keypoint_rows(points, len(pictures), recipe.downscale)
    _, model, params = _colmap_camera(recipe)
    camera = recipe.camera
    head = f"1 {model} {camera.width} {camera.height} " + " ".join(f"{value:.10g}" for value in params)
    (sparse / "cameras.txt").write_text(f"# CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]\n{head}\n")
    lines = ["# IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME", "# POINTS2D[] as (X, Y, POINT3D_ID)"]
    for index, pose in enumerate(poses):
        numbers = " ".join(f"{value:.12g}" for value in (*quaternion(pose[:3, :3]), *pose[:3, 3]))
        lines.append(f"{index + 1} {numbers} 1 {image_name(index)}")
        lines.append(" ".join(f"{x:.2f} {y:.2f} {point}" for x, y, point in rows[index]))
    (sparse / "images.txt").write_text("\n".join(lines) + "\n")
    lines = ["# POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[] as (IMAGE_ID, POINT2D_IDX)"]
    for index, track in enumerate(tracks):
        place = " ".join(f"{value:.6g}" for value in points.xyz[index])
        color = " ".join(str(value) for value in points.rgb[index].tolist())
        seen = " ".join(f"{image} {keypoint}" for image, keypoint in track)
        lines.append(f"{index + 1} {place} {color} {points.error[index]:.4f} {seen}")
    (sparse / "points3D.txt").write_text("\n".join(lines) + "\n")


def write_points_ply(points: Observed, path: Path) -> None:
    """x y z nx ny nz red green blue, binary little-endian, as the field stores initial points."""
    layout = [(name, "<f4") for name in ("x", "y", "z", "nx", "ny", "nz")]
    layout += [(name, "u1") for name in ("red", "green", "blue")]
    table = np.zeros(len(points.xyz), dtype=layout)
    for axis, name in enumerate(("x", "y", "z")):
        table[name] = points.xyz[:, axis]
    for channel, name in enumerate(("red", "green", "blue")):
        table[name] = points.rgb[:, channel]
    kinds = {"<f4": "float", "u1": "uchar"}
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(table)}"]
    header += [f"property {kinds[kind]} {name}" for name, kind in layout] + ["end_header", ""]
    path.write_bytes("\n".join(header).encode() + table.tobytes())


def _frames(poses: Sequence[Array], indices: Sequence[int], folder: str, suffix: str) -> list[dict[str, Any]]:
    """Frames of a transforms file: camera-to-world in OpenGL axes."""
    frames = []
    for index in indices:
        matrix = np.linalg.inv(poses[index]) @ FLIP
        stem = image_name(index)[: -len(".png")]
        frames.append(
            {"file_path": f"{folder}/{stem}{suffix}", "transform_matrix": np.round(matrix, 9).tolist()}
        )
    return frames


def write_blender(
    recipe: Recipe, pictures: Sequence[Picture], poses: Sequence[Array], points: Observed, root: Path
) -> None:
    """transforms_train.json, transforms_test.json, RGBA images and points3d.ply."""
    _save_images(pictures, root / recipe.image_folder, with_alpha=True)
    camera: Camera = recipe.camera
    angle = 2.0 * float(np.arctan(0.5 * camera.width / camera.fx))
    folder = f"./{recipe.image_folder}"
    for name, indices in (
        ("train", [i for i in range(len(poses)) if i % 8]),
        ("test", list(range(0, len(poses), 8))),
    ):
        document = {"camera_angle_x": angle, "frames": _frames(poses, indices, folder, "")}
        (root / f"transforms_{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    write_points_ply(points, root / "points3d.ply")


def write_nerfstudio(
    recipe: Recipe, pictures: Sequence[Picture], poses: Sequence[Array], points: Observed, root: Path
) -> None:
    """transforms.json with OPENCV distortion, and sparse_pc.ply."""
    _save_images(pictures, root / recipe.image_folder)
    camera, lens = recipe.camera, recipe.distortion
    document = {
        "camera_model": "OPENCV",
        "w": camera.width,
        "h": camera.height,
        "fl_x": camera.fx,
        "fl_y": camera.fy,
        "cx": camera.cx,
        "cy": camera.cy,
        "k1": lens.k1,
        "k2": lens.k2,
        "p1": lens.p1,
        "p2": lens.p2,
        "ply_file_path": "sparse_pc.ply",
        "frames": _frames(poses, range(len(poses)), recipe.image_folder, ".png"),
    }
    (root / "transforms.json").write_text(json.dumps(document, indent=1) + "\n")
    write_points_ply(points, root / "sparse_pc.ply")


Writer = Callable[[Recipe, Sequence[Picture], Sequence[Array], Observed, Path], None]
WRITERS: dict[str, Writer] = {
    "colmap-binary": write_colmap_binary,
    "colmap-text": write_colmap_text,
    "blender": write_blender,
    "nerfstudio": write_nerfstudio,
}
