"""Tiny scenes in every layout, ray-traced in a second."""

import dataclasses
from pathlib import Path

from hypothesis import HealthCheck, settings

from smoke_trainer.data.camera import Camera, Distortion
from tools.scenes.recipes import RECIPES, SceneRecipe, orbit
from tools.scenes.render import Picture, render_view
from tools.scenes.sfm import Observed, reconstruct
from tools.scenes.write import write_scene

FUZZ = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
LAYOUTS = ("colmap-binary", "colmap-text", "blender", "nerfstudio")
TINY = Camera(48, 36, 45.0, 46.0, 25.0, 17.0)
# Of one row of each group of Gaussians with harmonics of degree 3.
SHAPES = {
    "xyz": (3,),
    "f_dc": (1, 3),
    "f_rest": (15, 3),
    "opacity": (1,),
    "scaling": (3,),
    "rotation": (4,),
}
LENS = Distortion(k1=-0.3, k2=0.05, p1=0.002, p2=-0.001)


@dataclasses.dataclass(frozen=True)
class TinyScene:
    """A recipe with what it rendered."""

    recipe: SceneRecipe
    pictures: list[Picture]
    points: Observed

    def write(self, folder: Path) -> None:
        """Write it into a new folder."""
        folder.mkdir()
        write_scene(self.recipe, self.pictures, self.points, folder)


def tiny_recipe(layout: str) -> SceneRecipe:
    base = dataclasses.replace(
        RECIPES["fruit"],
        name="tiny",
        layout=layout,
        camera=TINY,
        poses=orbit(10, 1.9, 0.9, (0.05, -0.2, 0.0), 160.0, -80.0),
        points=300,
    )
    if layout == "colmap-binary":
        return dataclasses.replace(base, camera=TINY.resized(TINY.width * 8, TINY.height * 8), downscale=8)
    if layout == "nerfstudio":
        return dataclasses.replace(base, distortion=LENS)
    if layout == "blender":  # its files state one angle only
        figurine = RECIPES["figurine"]
        return dataclasses.replace(
            base,
            camera=Camera(40, 40, 55.0, 55.0, 20.0, 20.0),
            world=figurine.world,
            seed=figurine.seed,
            poses=orbit(10, 4.2, 0.9, (0.0, 0.0, 0.0), 160.0, -80.0),
        )
    return base


def tiny_scene(layout: str) -> TinyScene:
    recipe = tiny_recipe(layout)
    pictures = []
    for pose in recipe.poses:
        pictures.append(render_view(recipe.world, recipe.image_camera, pose, 2, recipe.distortion))
    return TinyScene(recipe, pictures, reconstruct(recipe, pictures))
