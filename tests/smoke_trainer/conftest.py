"""Tiny scenes, made once per session, and runs short enough for the fast tests."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from smoke_trainer.config import TrainConfig, scaled_to
from tests.smoke_trainer.tiny import TinyScene, tiny_scene

ShortRun = Callable[..., TrainConfig]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Images this small only lose time to several threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_scenes() -> Callable[[str], TinyScene]:
    return cache(tiny_scene)


@pytest.fixture(scope="session")
def written_scenes(
    tiny_scenes: Callable[[str], TinyScene], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A tiny scene of a layout on disk, to read only."""
    root = tmp_path_factory.mktemp("scenes")

    def get(layout: str) -> Path:
        folder = root / f"scene-{layout}"
        if not folder.is_dir():
            tiny_scenes(layout).write(folder)
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
