"""Writes a rendered scene in the field's layouts: COLMAP binary and text, Blender, nerfstudio."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tools.scenes.recipes import SceneRecipe
from tools.scenes.render import Array, Picture
from tools.scenes.sfm import Observed

# COLMAP's numbers for its camera models (src/colmap/sensor/models.h).
PINHOLE_ID, SIMPLE_RADIAL_ID = 1, 2
FLIP = np.diag([1.0, -1.0, -1.0, 1.0])  # OpenCV axes (y down, z forward) to OpenGL axes (y up, z back)


def write_scene(recipe: SceneRecipe, pictures: Sequence[Picture], points: Observed, root: Path) -> None:
    """Write images and reconstruction of one recipe below `root` (which must exist)."""
    _save_images(recipe, pictures, root / recipe.image_folder)
    if recipe.layout == "blender":
        _write_blender(recipe, root)
        _write_ply(points, root / "points3d.ply")
    elif recipe.layout == "nerfstudio":
        _write_nerfstudio(recipe, root)
        _write_ply(points, root / "sparse_pc.ply")
    else:
        sparse = root / "sparse" / "0"
        sparse.mkdir(parents=True, exist_ok=True)
        write = _write_colmap_binary if recipe.layout == "colmap-binary" else _write_colmap_text
        write(recipe, points, sparse)


def image_name(index: int) -> str:
    """File names as cameras write them; sorted order is capture order."""
    return f"view_{index:03d}.png"


def _save_images(recipe: SceneRecipe, pictures: Sequence[Picture], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for index, picture in enumerate(pictures):
        planes = picture.color
        if recipe.layout == "blender":
            planes = np.dstack([picture.color, picture.alpha])
        data = np.round(np.clip(planes, 0.0, 1.0) * 255).astype(np.uint8)
        Image.fromarray(data).save(folder / image_name(index), optimize=True)


def _quaternion(rotation: Array) -> tuple[float, float, float, float]:
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


def _colmap_camera(recipe: SceneRecipe) -> tuple[int, str, list[float]]:
    """(model number, model name, parameters) of the recipe's camera."""
    camera = recipe.camera
    if recipe.distortion.is_zero:
        return PINHOLE_ID, "PINHOLE", [camera.fx, camera.fy, camera.cx, camera.cy]
    return SIMPLE_RADIAL_ID, "SIMPLE_RADIAL", [camera.fx, camera.cx, camera.cy, recipe.distortion.k1]


def _keypoint_rows(
    recipe: SceneRecipe, points: Observed
) -> tuple[list[list[tuple[float, float, int]]], list[list[tuple[int, int]]]]:
    """Keypoints of every view as (x, y, point id), and tracks of every point as (image id, keypoint index)."""
    rows: list[list[tuple[float, float, int]]] = [[] for _ in recipe.poses]
    tracks: list[list[tuple[int, int]]] = []
    for point, track in enumerate(points.tracks):
        tracks.append([])
        for view, x, y in track:
            tracks[-1].append((view + 1, len(rows[view])))
            rows[view].append((x * recipe.downscale, y * recipe.downscale, point + 1))
    return rows, tracks


def _write_colmap_binary(recipe: SceneRecipe, points: Observed, sparse: Path) -> None:
    """cameras.bin, images.bin and points3D.bin (COLMAP 3.x: no rigs.bin, no frames.bin)."""
    rows, tracks = _keypoint_rows(recipe, points)
    number, _, params = _colmap_camera(recipe)
    with (sparse / "cameras.bin").open("wb") as out:
        out.write(struct.pack("<QIiQQ", 1, 1, number, recipe.camera.width, recipe.camera.height))
        out.write(struct.pack(f"<{len(params)}d", *params))
    with (sparse / "images.bin").open("wb") as out:
        out.write(struct.pack("<Q", len(recipe.poses)))
        for index, pose in enumerate(recipe.poses):
            out.write(struct.pack("<I7dI", index + 1, *_quaternion(pose[:3, :3]), *pose[:3, 3], 1))
            out.write(image_name(index).encode() + b"\0" + struct.pack("<Q", len(rows[index])))
            out.writelines(struct.pack("<ddq", *row) for row in rows[index])
    with (sparse / "points3D.bin").open("wb") as out:
        out.write(struct.pack("<Q", len(points.xyz)))
        for index, track in enumerate(tracks):
            color = points.rgb[index].tolist()
            out.write(struct.pack("<Q3d3Bd", index + 1, *points.xyz[index], *color, points.error[index]))
            out.write(struct.pack("<Q", len(track)))
            out.writelines(struct.pack("<II", *entry) for entry in track)


def _write_colmap_text(recipe: SceneRecipe, points: Observed, sparse: Path) -> None:
    """cameras.txt, images.txt and points3D.txt."""
    rows, tracks = _keypoint_rows(recipe, points)
    _, model, params = _colmap_camera(recipe)
    numbers = " ".join(f"{value:.10g}" for value in params)
    camera = f"1 {model} {recipe.camera.width} {recipe.camera.height} {numbers}"
    (sparse / "cameras.txt").write_text(f"# CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]\n{camera}\n")
    lines = ["# IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME", "# POINTS2D[] as (X, Y, POINT3D_ID)"]
    for index, pose in enumerate(recipe.poses):
        numbers = " ".join(f"{value:.12g}" for value in (*_quaternion(pose[:3, :3]), *pose[:3, 3]))
        lines.append(f"{index + 1} {numbers} 1 {image_name(index)}")
        lines.append(" ".join(f"{x:.2f} {y:.2f} {point}" for x, y, point in rows[index]))
    (sparse / "images.txt").write_text("\n".join(lines) + "\n")
    lines = ["# POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[] as (IMAGE_ID, POINT2D_IDX)"]
    for index, track in enumerate(tracks):
        position = " ".join(f"{value:.6g}" for value in points.xyz[index])
        color = " ".join(str(value) for value in points.rgb[index].tolist())
        entries = " ".join(f"{image} {keypoint}" for image, keypoint in track)
        lines.append(f"{index + 1} {position} {color} {points.error[index]:.4f} {entries}")
    (sparse / "points3D.txt").write_text("\n".join(lines) + "\n")


def _write_ply(points: Observed, path: Path) -> None:
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


def _frames(recipe: SceneRecipe, indices: Sequence[int], name: str) -> list[dict[str, Any]]:
    """Frames of a transforms file: camera-to-world in OpenGL axes; `name` is a pattern of file names."""
    frames = []
    for index in indices:
        matrix = np.round(np.linalg.inv(recipe.poses[index]) @ FLIP, 9).tolist()
        frames.append({"file_path": name.format(Path(image_name(index)).stem), "transform_matrix": matrix})
    return frames


def _write_blender(recipe: SceneRecipe, root: Path) -> None:
    """transforms_train.json and transforms_test.json, which name images without their suffix."""
    angle = 2.0 * float(np.arctan(0.5 * recipe.camera.width / recipe.camera.fx))
    views = range(len(recipe.poses))
    for name, indices in (("train", [view for view in views if view % 8]), ("test", views[::8])):
        frames = _frames(recipe, indices, f"./{recipe.image_folder}/{{}}")
        document = {"camera_angle_x": angle, "frames": frames}
        (root / f"transforms_{name}.json").write_text(json.dumps(document, indent=1) + "\n")


def _write_nerfstudio(recipe: SceneRecipe, root: Path) -> None:
    """transforms.json with OPENCV distortion."""
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
        "frames": _frames(recipe, range(len(recipe.poses)), f"{recipe.image_folder}/{{}}.png"),
    }
    (root / "transforms.json").write_text(json.dumps(document, indent=1) + "\n")
