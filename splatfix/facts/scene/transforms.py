"""Blender's ``transforms_train.json`` and nerfstudio's ``transforms.json``: cameras and poses of frames.

Poses are camera-to-world matrices with y up and z backwards (nerfstudio's documentation, "Data conventions").
"""

import math
from collections.abc import Iterator, Mapping
from operator import mul
from pathlib import Path
from typing import Any

from splatfix.core.codec import parse_json
from splatfix.core.reading import read_text
from splatfix.facts.scene.model import FARTHEST, Camera, Pose, SceneImage
from splatfix.facts.scene.photos import leads_out

TRAIN, TEST, ONE_FILE = "transforms_train.json", "transforms_test.json", "transforms.json"
_MODELS = {"OPENCV", "OPENCV_FISHEYE", "PINHOLE", "SIMPLE_PINHOLE"}
_MOST_JSON = 32 << 20


class NoTransforms(Exception):
    """A file that is no document of frames; the message says why, without a full stop."""


def read_transforms(folder: Path, name: str) -> Mapping[str, Any]:
    """The document of one file.

    Raises:
        NoTransforms: it cannot be read, is no JSON object, or has no list of frames.
    """
    if leads_out(folder, name):
        raise NoTransforms(f"{name} is a link that leads out of the scene's folder")
    text = read_text(folder / name, _MOST_JSON)
    if not isinstance(text, str):
        raise NoTransforms(f"{name} cannot be read: {text.reason if text else 'there is none'}")
    try:
        document = parse_json(text)
    except ValueError as error:
        raise NoTransforms(f"{name} is no JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("frames"), list):
        raise NoTransforms(f"{name} has no list of frames")
    return document


def images_of(
    document: Mapping[str, Any], *, held_out: bool | None, ending: str = ""
) -> Iterator[SceneImage]:
    """The frames of a document.

    Args:
        held_out: what is so of all of them.
        ending: what loaders add to paths that have none.
    """
    shared = _camera(document, document)
    for frame in document["frames"]:
        if not isinstance(frame, dict) or not isinstance(frame.get("file_path"), str):
            yield SceneImage("", "", shared, None, held_out)
            continue
        path = frame["file_path"].removeprefix("./").replace("\\", "/")
        camera = shared
        if "fl_x" in frame or "w" in frame:
            camera = _camera(frame, document)
        if not Path(path).suffix:
            path += ending
        yield SceneImage(frame["file_path"], path, camera, _pose(frame.get("transform_matrix")), held_out)


def _camera(frame: Mapping[str, Any], document: Mapping[str, Any]) -> Camera | None:
    """Of a frame, or else of the document."""

    def number(name: str) -> float:
        value = frame.get(name, document.get(name, 0.0))
        return float(value) if isinstance(value, (int, float)) else math.nan

    try:
        width, height = int(number("w")), int(number("h"))
    except (ValueError, OverflowError):
        return None
    focal, model = number("fl_x"), str(document.get("camera_model", "OPENCV"))
    if not focal or model not in _MODELS:
        return Camera.stated(model[:60] if focal else "", width, height, ())
    distortion = tuple(map(number, ("k1", "k2", "p1", "p2")))
    if not any(distortion) and model == "OPENCV":
        model = "PINHOLE"
    values = [focal, number("fl_y") or focal, number("cx") or width / 2, number("cy") or height / 2]
    if model == "SIMPLE_PINHOLE":
        del values[1]
    elif model != "PINHOLE":
        values += distortion
    return Camera.stated(model, width, height, tuple(values))


def _pose(matrix: object) -> Pose | None:
    """World to camera, y down and z forward; None where it is no matrix of numbers, or stretches or mirrors."""
    try:
        rows = [[float(value) for value in row] for row in matrix]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return None
    if len(rows) not in (3, 4) or any(len(row) != 4 for row in rows):
        return None
    if not all(abs(value) < FARTHEST for row in rows for value in row):
        return None
    # the matrix's columns, of which the last two point up and backwards
    columns = zip(*rows[:3], strict=True)
    axes = [
        (sign * x, sign * y, sign * z)
        for (x, y, z), sign in zip(columns, (1.0, -1.0, -1.0, 1.0), strict=True)
    ]
    right, down, forward, position = axes
    (a, b, c), (d, e, f), (g, h, i) = right, down, forward
    determinant = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
    lengths = [math.hypot(*axis) for axis in axes[:3]]
    # three unit vectors at right angles, right-handed, within what six decimal places leave
    if not all(abs(number - 1.0) < 0.01 for number in (determinant, *lengths)):
        return None
    x, y, z = (-sum(map(mul, axis, position)) for axis in axes[:3])
    return Pose((right, down, forward), (x, y, z))
