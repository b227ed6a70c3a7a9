"""Makes a sample scene from its recipe, checks a stored one against a fresh rendering, and writes the index of all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tools.scenes.raytrace import render_view
from tools.scenes.recipes import RECIPES, Recipe
from tools.scenes.sfm import reconstruct
from tools.scenes.write import image_name, write_scene

SAMPLES = Path(__file__).resolve().parents[2] / "smoke_trainer" / "samples"
INDEX = "samples.json"
# A byte may differ by rounding between processors; more than this on average is a different picture.
MEAN_TOLERANCE = 0.5


def make_scene(recipe: Recipe, root: Path) -> Path:
    """Render a scene and write it below `root/NAME`; returns that folder. Takes 10 to 60 s."""
    folder = root / recipe.name
    folder.mkdir(parents=True, exist_ok=True)
    world, poses, camera = recipe.world(), recipe.poses(), recipe.image_camera
    pictures = [render_view(world, camera, pose, distortion=recipe.distortion) for pose in poses]
    points = reconstruct(pictures, camera, poses, recipe.distortion, recipe.points, recipe.seed)
    write_scene(recipe, pictures, poses, points, folder)
    return folder


def check_scene(recipe: Recipe, folder: Path, views: Sequence[int] = (0, 5)) -> list[str]:
    """Render a few views again and compare them with the stored images; returns what differs."""
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


def index_of(root: Path) -> dict[str, Any]:
    """What `splatfix scenes` knows of the scenes below `root`: kind, layout, size, and the SHA-256 of every file."""
    return {
        "schema_version": 1,
        "scenes": [
            describe(recipe, root / name) for name, recipe in RECIPES.items() if (root / name).is_dir()
        ],
    }


def describe(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """One scene of the index; `size` is [width, height] of the stored images in pixels."""
    camera = recipe.image_camera
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        "name": recipe.name,
        "kind": recipe.kind,
        "layout": recipe.layout,
        "views": len(recipe.poses()),
        "size": [camera.width, camera.height],
        "points": recipe.points,
        "files": {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        },
    }


def write_index(root: Path) -> None:
    """Write the index of the scenes below `root`."""
    (root / INDEX).write_text(json.dumps(index_of(root), indent=1) + "\n", encoding="utf-8")
