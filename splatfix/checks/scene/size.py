"""How large a scene is: photos, their size and points, for those who foretell memory and time."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from splatfix.core.reading import is_folder
from splatfix.facts.scene.model import Camera, Photo, Pose, Scene
from splatfix.facts.scene.reader import read_scene

RANDOM_POINTS = 100_000
"""That Inria's trainer starts from where a Blender scene has no points (scene/dataset_readers.py)."""

_POINTS, _VIEWS = 400, 60
"""That are looked at."""
_MARGIN = 0.05


class SceneSize(Struct, frozen=True):
    """Photos, size of one, points."""

    photos: int
    width: int
    height: int
    points: int
    channels: int = 3
    """4 where the photos have alpha, as far as a header says so."""
    copies: tuple[int, ...] = ()
    """By how much the copies beside the photos are reduced: 8 where there is an ``images_8``."""
    in_view: float | None = None
    """Share of the points in or near the view that shows most of them; None where there are none."""


def read_scene_size(folder: Path) -> SceneSize | str:
    """Return the size of a scene, or why the folder is none, or a damaged one."""
    if not is_folder(folder):
        return f"there is no folder {folder}"
    scene = read_scene(folder)
    if scene.layout in ("", "photos"):
        return f"{folder} has neither sparse/ (COLMAP) nor transforms_train.json or transforms.json"
    if scene.damage:
        return f"the scene in {folder} is damaged or not complete: {scene.damage}"
    size = size_of(scene)
    if size is None:
        return f"{folder} has no images, or nothing tells their size"
    return size


def size_of(scene: Scene) -> SceneSize | None:
    """Return the size of a scene that was read; None where it has no images, or nothing tells how large they are."""
    if not scene.images:
        return None
    photo = scene.photos.get(scene.images[0].path) or Photo("", 0)
    camera = scene.images[0].camera
    width, height = photo.width, photo.height
    if camera is not None and camera.width and camera.height:
        width, height = camera.width, camera.height
    if not (0 < width <= 1 << 16 and 0 < height <= 1 << 16):
        return None
    points = RANDOM_POINTS if scene.points is None else scene.points.count
    in_view = most_in_view(scene)
    return SceneSize(len(scene.images), width, height, points, 3 + photo.alpha, tuple(scene.copies), in_view)


def most_in_view(scene: Scene) -> float | None:
    """Return the share of the points in or near the view that shows most of them; None where there are no points.

    A Gaussian reaches beyond its center: points up to a part of the image's width beside it count.
    """
    if scene.points is None or not scene.points.sample:
        return None
    points = scene.points.sample[:: max(1, len(scene.points.sample) // _POINTS)]
    posed = [(image.camera, image.pose) for image in scene.images if image.camera and image.pose]

    def shown(camera: Camera, pose: Pose) -> int:
        pixels = (camera.project(pose.seen_from(point)) for point in points)
        return sum(pixel is not None and camera.shows(pixel, _MARGIN) for pixel in pixels)

    views = posed[:: max(1, len(posed) // _VIEWS)]
    return max((shown(*view) for view in views), default=0) / len(points) or None
