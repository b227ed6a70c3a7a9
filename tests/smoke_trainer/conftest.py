"""Copies of tiny scenes, and runs short enough for the fast tests."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from smoke_trainer.config import TrainConfig, scaled_to
from smoke_trainer.train import prepare
from tests.smoke_trainer.tiny import SCENES

ShortRun = Callable[..., TrainConfig]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Images this small only lose time to several threads."""
    torch.set_num_threads(1)


@pytest.fixture
def scene_folder(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a tiny scene, to change."""

    def copy(layout: str) -> Path:
        folder = tmp_path / f"scene-{layout}"
        shutil.copytree(SCENES / layout, folder, dirs_exist_ok=True)
        return folder

    return copy


@pytest.fixture(scope="session")
def short_run_in() -> Callable[[Path], ShortRun]:
    """Makes `short_run` for an output folder."""

    def in_folder(folder: Path) -> Callable[..., TrainConfig]:
        def make(
            iterations: int = 12, out: str = "out", layout: str = "colmap-binary", **changes: Any
        ) -> TrainConfig:
            scene = str(changes.pop("scene", None) or SCENES / layout)
            return scaled_to(TrainConfig(scene=scene, iterations=iterations, out=folder / out, **changes))

        return make

    return in_folder


@pytest.fixture
def short_run(short_run_in: Callable[[Path], Callable[..., TrainConfig]], tmp_path: Path) -> ShortRun:
    """A configuration for a few iterations on the tiny COLMAP scene."""
    return short_run_in(tmp_path)


@pytest.fixture
def prepared(short_run: ShortRun) -> Iterator[Callable[..., Any]]:
    """Runs that are ready for their first step."""
    runs: list[Any] = []

    def make(iterations: int = 20, **changes: Any) -> Any:
        runs.append(prepare(short_run(iterations, out=f"run{len(runs)}", **changes)))
        return runs[-1]

    yield make
    for run in runs:
        run.monitor.close()
