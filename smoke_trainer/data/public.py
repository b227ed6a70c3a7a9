"""The thirteen public scenes of the field, by name: where they lie below a data folder, at which size and budget they train."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from smoke_trainer.errors import SceneError

# full_eval.py of taming-3dgs (commit fd0f7d9), mode "budget": densification every 500 iterations, as its train.sh has it.
BUDGET_DENSIFY_EVERY = 500


@dataclass(frozen=True)
class PublicScene:
    """A scene's data set, the divisor of its image size (images_4, images_2, images), and its published budgets.

    `multiplier` is the final number of Gaussians as a multiple of the initial points ("budget"), `final_count` the
    number that training without a limit reaches ("big").
    """

    dataset: str
    divisor: int
    multiplier: float
    final_count: int


def _scenes(dataset: str, divisor: int, multiplier: float, counts: Dict[str, int]) -> Dict[str, PublicScene]:
    return {name: PublicScene(dataset, divisor, multiplier, count) for name, count in counts.items()}


# Divisors: full_eval.py of the reference implementation. Budgets: full_eval.py of taming-3dgs (commit fd0f7d9).
PUBLIC_SCENES: Dict[str, PublicScene] = {
    **_scenes("Mip-NeRF 360, outdoor", 4, 15.0, {
        "bicycle": 5987095, "flowers": 3618411, "garden": 5728191, "stump": 4867429, "treehill": 3770257,
    }),
    **_scenes("Mip-NeRF 360, indoor", 2, 2.0, {
        "bonsai": 1252367, "counter": 1190919, "kitchen": 1803735, "room": 1548960,
    }),
    **_scenes("Tanks and Temples", 1, 2.0, {"train": 1085480, "truck": 2584171}),
    **_scenes("Deep Blending", 1, 5.0, {"drjohnson": 3273600, "playroom": 2326100}),
}  # fmt: skip


def find_public(name: str, data: Path) -> Optional[Path]:
    """The folder of a scene directly below `data` or below one of its folders; None if it is not there.

    Only a folder with a reconstruction counts: many data sets have a folder `train` that is no scene.
    """
    places = [data / name, *sorted(path / name for path in data.glob("*") if path.is_dir())]
    return next((path for path in places if (path / "sparse").is_dir()), None)


def find_all_public(data: Path) -> Tuple[Dict[str, Path], List[str]]:
    """The public scenes that are there, by name, and the names of those that are not; none at all is a SceneError."""
    places = {name: find_public(name, data) for name in PUBLIC_SCENES}
    there = {name: path for name, path in places.items() if path is not None}
    if not there:
        raise SceneError(
            f"none of the public scenes is below {data}",
            f"looked for {', '.join(PUBLIC_SCENES)}, directly or one folder deeper, each with its sparse/",
            "download a data set, or give the folder that holds the scenes' folders",
        )
    return there, [name for name, path in places.items() if path is None]


def locate(name: str, data: Path) -> Path:
    """The folder of a scene below `data`; a SceneError says which of the public ones are there."""
    found = find_public(name, data)
    if found is None:
        there = [scene for scene in PUBLIC_SCENES if find_public(scene, data) is not None]
        raise SceneError(
            f"{name} is not below {data}",
            f"of the public scenes these are there: {', '.join(there) or 'none'}",
            "download the data set, or name another scene",
        )
    return found
