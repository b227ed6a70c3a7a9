"""Makes a sample scene from its recipe, and checks a stored one against a fresh rendering."""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence

import numpy as np
from PIL import Image

from smoke_trainer.errors import UsageError
from smoke_trainer.scenes.raytrace import render_view
from smoke_trainer.scenes.recipes import RECIPES, Recipe
from smoke_trainer.scenes.sfm import reconstruct
from smoke_trainer.scenes.write import image_name, write_scene

# A byte may differ by rounding between processors; more than this on average is a different picture.
MEAN_TOLERANCE = 0.5


def find_recipe(name: str) -> Recipe:
    """The recipe of that name, or a usage error that lists the names there are."""
    if name not in RECIPES:
        raise UsageError(
            f"there is no sample scene called {name!r}", remedy=f"choose one of: {', '.join(RECIPES)}"
        )
    return RECIPES[name]


def make_scene(name: str, root: Path) -> Path:
    """Render a sample scene and write it below `root/name`; returns that folder. Takes 10 to 60 s."""
    recipe = find_recipe(name)
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    world, poses, camera = recipe.world(), recipe.poses(), recipe.image_camera
    pictures = [render_view(world, camera, pose, distortion=recipe.distortion) for pose in poses]
    points = reconstruct(pictures, camera, poses, recipe.distortion, recipe.points, recipe.seed)
    write_scene(recipe, pictures, poses, points, folder)
    return folder


def check_scene(name: str, folder: Path, views: Sequence[int] = (0, 5)) -> List[str]:
    """Render a few views again and compare them with the stored images; returns what differs (empty: nothing)."""
    recipe = find_recipe(name)
    world, poses = recipe.world(), recipe.poses()
    problems = []
    for index in views:
        path = folder / recipe.image_folder / image_name(index)
        if not path.is_file():
            problems.append(f"{path.name} is missing")
            continue
        picture = render_view(world, recipe.image_camera, poses[index], distortion=recipe.distortion)
        with Image.open(path) as image:
            stored = np.asarray(image).astype(np.float64)[..., :3]
        if stored.shape != picture.color.shape:
            problems.append(f"{path.name} is {stored.shape[1]}x{stored.shape[0]}, not the recipe's size")
            continue
        difference = np.abs(stored - np.round(picture.color * 255)).mean()
        if difference > MEAN_TOLERANCE:
            problems.append(f"{path.name} differs from its recipe by {difference:.2f} of 255 on average")
    return problems
