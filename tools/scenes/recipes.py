"""The six sample scenes as data: which world, seen from where, through which camera, stored in which layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from smoke_trainer.data.camera import NO_DISTORTION, Camera, Distortion
from tools.scenes import worlds
from tools.scenes.raytrace import World

Array = np.ndarray


@dataclass(frozen=True)
class Recipe:
    """How to make one sample scene.

    `camera` is the size that the reconstruction states; images are stored `downscale` times smaller, in the folder
    `image_folder`, as prepared data sets of the field are (`images_8`).
    """

    name: str
    kind: str
    layout: str  # colmap-binary | colmap-text | blender | nerfstudio
    camera: Camera
    downscale: int
    image_folder: str
    world: Callable[[], World]
    poses: Callable[[], list[Array]]
    points: int
    seed: int
    distortion: Distortion = NO_DISTORTION

    @property
    def image_camera(self) -> Camera:
        """The camera at the size of the stored images."""
        return self.camera.resized(self.camera.width // self.downscale, self.camera.height // self.downscale)


def look_at(eye: Sequence[float], target: Sequence[float]) -> Array:
    """World-to-camera matrix [4, 4] of a level camera at `eye` that looks at `target` (y down, z forward)."""
    position = np.asarray(eye, dtype=np.float64)
    forward = np.asarray(target, dtype=np.float64) - position
    forward /= np.linalg.norm(forward)
    right = np.cross([0.0, 1.0, 0.0], forward)
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(forward, right), forward])
    matrix = np.eye(4)
    matrix[:3, :3] = rotation
    matrix[:3, 3] = -rotation @ position
    return matrix


def orbit(
    count: int, radius: float, height: float, target: Sequence[float], span: float = 360.0, start: float = 0.0
) -> list[Array]:
    """Cameras around a target over `span` degrees, rising and falling a little so that no two lie in one plane."""
    closed = span >= 360.0
    angles = np.radians(start + np.linspace(0.0, span, count, endpoint=not closed))
    poses = []
    for index, angle in enumerate(angles):
        lift = height * (1.0 + 0.25 * np.sin(2.4 * index))
        reach = radius * (1.0 + 0.08 * np.cos(1.7 * index))
        eye = (target[0] + reach * np.sin(angle), -lift, target[2] - reach * np.cos(angle))
        poses.append(look_at(eye, target))
    return poses


def _inside(count: int) -> list[Array]:
    """Cameras that stand along the walls of the study and look across it."""
    angles = np.linspace(0.0, 2.0 * np.pi, count, endpoint=False)
    eyes = [(2.0 * np.sin(a), -1.35 - 0.25 * np.sin(3.0 * a), -2.0 * np.cos(a)) for a in angles]
    return [look_at(eye, (-0.3 * eye[0] + 0.15, -0.8, -0.3 * eye[2])) for eye in eyes]


PINHOLE = Camera(1280, 960, 1100.0, 1100.0, 640.0, 480.0)
OFF_CENTER = Camera(1280, 960, 860.0, 872.0, 668.0, 456.0)
SQUARE = Camera(128, 128, 177.0, 177.0, 64.0, 64.0)
SMALL = Camera(160, 120, 150.0, 150.0, 80.0, 60.0)
WIDE = Camera(640, 480, 520.0, 520.0, 320.0, 240.0)
LENS = Distortion(k1=-0.12, k2=0.03, p1=0.002, p2=-0.001)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "courtyard",
            "outdoor with far background",
            "colmap-binary",
            PINHOLE,
            8,
            "images_8",
            worlds.courtyard,
            lambda: orbit(24, 4.0, 1.5, (0.0, -0.6, 0.0)),
            2600,
            101,
        ),
        Recipe(
            "study",
            "indoor, principal point off centre",
            "colmap-binary",
            OFF_CENTER,
            8,
            "images_8",
            worlds.study,
            lambda: _inside(24),
            2600,
            102,
        ),
        Recipe(
            "fruit",
            "close-up with highlights",
            "colmap-text",
            SMALL,
            1,
            "images",
            worlds.fruit,
            lambda: orbit(24, 1.9, 0.9, (0.05, -0.2, 0.0), 150.0, -75.0),
            1800,
            103,
        ),
        Recipe(
            "figurine",
            "synthetic object with alpha",
            "blender",
            SQUARE,
            1,
            "images",
            worlds.figurine,
            lambda: orbit(24, 4.2, 1.1, (0.0, 0.0, 0.0)),
            1500,
            104,
        ),
        Recipe(
            "trellis",
            "textured planes with thin structures, distorted lens",
            "nerfstudio",
            SMALL,
            1,
            "images",
            worlds.trellis,
            lambda: orbit(24, 3.4, 1.2, (0.0, -0.8, 0.0), 90.0, -45.0),
            2600,
            105,
            LENS,
        ),
        Recipe(
            "plaza",
            "wide baseline",
            "colmap-binary",
            WIDE,
            4,
            "images_4",
            worlds.plaza,
            lambda: orbit(16, 4.6, 1.9, (0.0, -0.7, 0.0)),
            2200,
            106,
            Distortion(k1=-0.06),
        ),
    )
}
