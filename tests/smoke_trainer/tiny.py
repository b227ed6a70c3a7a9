"""Tiny scenes in every layout, ray-traced in a second."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from smoke_trainer.data.camera import Camera, Distortion
from tools.scenes.raytrace import Picture, render_view
from tools.scenes.recipes import RECIPES, Recipe, orbit
from tools.scenes.sfm import Observed, reconstruct
from tools.scenes.write import write_scene

LAYOUTS = ("colmap-binary", "colmap-text", "blender", "nerfstudio")
TINY = Camera(48, 36, 45.0, 46.0, 25.0, 17.0)
LENS = Distortion(k1=-0.3, k2=0.05, p1=0.002, p2=-0.001)


@dataclasses.dataclass(frozen=True)
class TinyScene:
    """A recipe with what it rendered."""

    recipe: Recipe
    poses: list[Any]
    pictures: list[Picture]
    points: Observed

    def write(self, folder: Path) -> None:
        """Write it into a new folder."""
        folder.mkdir()
        write_scene(self.recipe, self.pictures, self.poses, self.points, folder)


def tiny_recipe(layout: str) -> Recipe:
    base = RECIPES["figurine" if layout == "blender" else "fruit"]
    reach = 4.2 if layout == "blender" else 1.9
    target = (0.0, 0.0, 0.0) if layout == "blender" else (0.05, -0.2, 0.0)
    nominal = TINY.resized(TINY.width * 8, TINY.height * 8) if layout == "colmap-binary" else TINY
    if layout == "blender":  # its files state one angle only
        nominal = Camera(40, 40, 55.0, 55.0, 20.0, 20.0)
    return dataclasses.replace(
        base,
        name="tiny",
        layout=layout,
        camera=nominal,
        downscale=8 if layout == "colmap-binary" else 1,
        image_folder="images_8" if layout == "colmap-binary" else "images",
        poses=lambda: orbit(10, reach, 0.9, target, 160.0, -80.0),
        points=300,
        distortion=LENS if layout == "nerfstudio" else Distortion(),
    )


def tiny_scene(layout: str) -> TinyScene:
    recipe = tiny_recipe(layout)
    poses, world = recipe.poses(), recipe.world()
    pictures = [
        render_view(world, recipe.image_camera, pose, samples=2, distortion=recipe.distortion)
        for pose in poses
    ]
    points = reconstruct(pictures, recipe.image_camera, poses, recipe.distortion, recipe.points, recipe.seed)
    return TinyScene(recipe, poses, pictures, points)
