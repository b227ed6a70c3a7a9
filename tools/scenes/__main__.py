"""`python -m tools.scenes [NAME ...]`: regenerate the sample scenes, or with `--check` compare them with their recipes."""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tools.scenes.recipes import RECIPES, SceneRecipe
from tools.scenes.render import render_view
from tools.scenes.sfm import reconstruct
from tools.scenes.write import image_name, write_scene

SAMPLES = Path(__file__).resolve().parents[2] / "smoke_trainer" / "samples"
INDEX = "samples.json"
# A byte may differ by rounding between processors; more than this on average is a different picture.
MEAN_TOLERANCE = 0.5


def make_scene(recipe: SceneRecipe, root: Path) -> Path:
    """Render a scene and write it below `root/NAME`; returns that folder. Takes 10 to 60 s."""
    folder = root / recipe.name
    folder.mkdir(parents=True, exist_ok=True)
    camera, lens = recipe.image_camera, recipe.distortion
    pictures = [render_view(recipe.world, camera, pose, distortion=lens) for pose in recipe.poses]
    write_scene(recipe, pictures, reconstruct(recipe, pictures), folder)
    return folder


def check_scene(recipe: SceneRecipe, folder: Path, views: Sequence[int] = (0, 5)) -> list[str]:
    """Render a few views again and compare them with the stored images; returns what differs."""
    problems = []
    for index in views:
        path = folder / recipe.image_folder / image_name(index)
        if not path.is_file():
            problems.append(f"{path.name} is missing")
            continue
        picture = render_view(
            recipe.world, recipe.image_camera, recipe.poses[index], distortion=recipe.distortion
        )
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
    """What `splatfix scenes` knows of the scenes below `root`: kind, layout, size in pixels, the SHA-256 of every file."""
    scenes = []
    for name, recipe in RECIPES.items():
        files = sorted(path for path in (root / name).rglob("*") if path.is_file())
        if not files:
            continue
        camera = recipe.image_camera
        digests = {}
        for path in files:
            digests[path.relative_to(root / name).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
        scenes.append(
            {
                "name": name,
                "kind": recipe.kind,
                "layout": recipe.layout,
                "views": len(recipe.poses),
                "size": [camera.width, camera.height],
                "points": recipe.points,
                "files": digests,
            }
        )
    return {"schema_version": 1, "scenes": scenes}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 1 if a stored scene differs from its recipe."""
    parser = argparse.ArgumentParser(prog="python -m tools.scenes", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="sample scenes (default: all)")
    parser.add_argument("--root", type=Path, default=SAMPLES, help="folder that holds one folder per scene")
    parser.add_argument(
        "--check", action="store_true", help="render a few views and compare them with the stored images"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(RECIPES):
        parser.error(f"unknown scene {', '.join(sorted(unknown))}; choose from {', '.join(RECIPES)}")
    differs = False
    for name in options.names or RECIPES:
        if options.check:
            problems = check_scene(RECIPES[name], options.root / name)
            differs = differs or bool(problems)
            print(f"{name}: {'; '.join(problems) or 'OK'}")
        else:
            print(make_scene(RECIPES[name], options.root))
            index = json.dumps(index_of(options.root), indent=1)
            (options.root / INDEX).write_text(index + "\n", encoding="utf-8")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
