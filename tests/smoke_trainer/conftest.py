"""Tiny scenes in every layout, made once per session, and runs short enough for the fast tests."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from smoke_trainer.config import TrainConfig, scaled_to
from smoke_trainer.data.camera import Camera, Distortion
from tools.scenes.raytrace import Picture, render_view
from tools.scenes.recipes import RECIPES, Recipe, orbit
from tools.scenes.sfm import Observed, reconstruct
from tools.scenes.write import write_scene

ShortRun = Callable[..., TrainConfig]
TINY = Camera(48, 36, 45.0, 46.0, 25.0, 17.0)
LENS = Distortion(k1=-0.3, k2=0.05, p1=0.002, p2=-0.001)


@dataclasses.dataclass(frozen=True)
class TinyScene:
    """A recipe with what it rendered."""

    recipe: Recipe
    poses: list[Any]
    pictures: list[Picture]
    points: Observed


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


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Images this small only lose time to several threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_scenes() -> Callable[[str], TinyScene]:
    made: dict[str, TinyScene] = {}

    def get(layout: str) -> TinyScene:
        if layout not in made:
            recipe = tiny_recipe(layout)
            poses, world = recipe.poses(), recipe.world()
            pictures = [
                render_view(world, recipe.image_camera, pose, samples=2, distortion=recipe.distortion)
                for pose in poses
            ]
            points = reconstruct(
                pictures, recipe.image_camera, poses, recipe.distortion, recipe.points, recipe.seed
            )
            made[layout] = TinyScene(recipe, poses, pictures, points)
        return made[layout]

    return get


@pytest.fixture(scope="session")
def written_scenes(
    tiny_scenes: Callable[[str], TinyScene], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A tiny scene of a layout on disk, to read only."""
    root = tmp_path_factory.mktemp("scenes")

    def get(layout: str) -> Path:
        tiny, folder = tiny_scenes(layout), root / f"scene-{layout}"
        if not folder.is_dir():
            folder.mkdir()
            write_scene(tiny.recipe, tiny.pictures, tiny.poses, tiny.points, folder)
        return folder

    return get


@pytest.fixture
def scene_folder(written_scenes: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a tiny scene, to change."""

    def copy(layout: str) -> Path:
        folder = tmp_path / f"scene-{layout}"
        shutil.copytree(written_scenes(layout), folder, dirs_exist_ok=True)
        return folder

    return copy


@pytest.fixture(scope="session")
def short_run_in(written_scenes: Callable[[str], Path]) -> Callable[[Path], ShortRun]:
    """Makes `short_run` for an output folder."""

    def in_folder(folder: Path) -> Callable[..., TrainConfig]:
        def make(
            iterations: int = 12, out: str = "out", layout: str = "colmap-binary", **changes: Any
        ) -> TrainConfig:
            scene = str(changes.pop("scene", None) or written_scenes(layout))
            return scaled_to(TrainConfig(scene=scene, iterations=iterations, out=folder / out, **changes))

        return make

    return in_folder


@pytest.fixture
def short_run(short_run_in: Callable[[Path], Callable[..., TrainConfig]], tmp_path: Path) -> ShortRun:
    """A configuration for a few iterations on the tiny COLMAP scene."""
    return short_run_in(tmp_path)
