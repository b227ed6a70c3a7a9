"""The recipes of the sample scenes, read from ``scenes.toml``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from smoke_trainer.data.camera import NO_DISTORTION, Camera, Distortion
from splatfix.core.toml import parse_toml
from tools.scenes.render import Array, World, world_of


@dataclass(frozen=True)
class SceneRecipe:
    """How to make one sample scene; the fields of its table are explained at the top of ``scenes.toml``."""

    name: str
    kind: str
    layout: str  # colmap-binary | colmap-text | blender | nerfstudio
    camera: Camera
    world: World
    poses: Sequence[Array] = field(repr=False)
    points: int
    seed: int
    downscale: int = 1
    distortion: Distortion = NO_DISTORTION

    @property
    def image_camera(self) -> Camera:
        """The camera at the size of the stored images."""
        return self.camera.resized(self.camera.width // self.downscale, self.camera.height // self.downscale)

    @property
    def image_folder(self) -> str:
        """``images``, or ``images_8`` where they are stored smaller than the reconstruction states."""
        return "images" if self.downscale == 1 else f"images_{self.downscale}"


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
    poses = []
    angles = np.radians(start + np.linspace(0.0, span, count, endpoint=span < 360.0))
    for index, angle in enumerate(angles):
        lift = height * (1.0 + 0.25 * np.sin(2.4 * index))
        reach = radius * (1.0 + 0.08 * np.cos(1.7 * index))
        eye = (target[0] + reach * np.sin(angle), -lift, target[2] - reach * np.cos(angle))
        poses.append(look_at(eye, target))
    return poses


def inside(count: int) -> list[Array]:
    """Cameras that stand along the walls of the study and look across it."""
    poses = []
    for angle in np.linspace(0.0, 2.0 * np.pi, count, endpoint=False):
        eye = (2.0 * np.sin(angle), -1.35 - 0.25 * np.sin(3.0 * angle), -2.0 * np.cos(angle))
        poses.append(look_at(eye, (-0.3 * eye[0] + 0.15, -0.8, -0.3 * eye[2])))
    return poses


def _recipe(name: str, table: dict[str, Any]) -> SceneRecipe:
    return SceneRecipe(
        name,
        table["kind"],
        table["layout"],
        Camera(*table["camera"]),
        world_of(table),
        orbit(**table["orbit"]) if "orbit" in table else inside(**table["inside"]),
        table["points"],
        table["seed"],
        table["downscale"],
        Distortion(**table.get("distortion", {})),
    )


_TABLES = parse_toml((Path(__file__).parent / "scenes.toml").read_text(encoding="utf-8"))
RECIPES = {name: _recipe(name, table) for name, table in _TABLES.items()}
