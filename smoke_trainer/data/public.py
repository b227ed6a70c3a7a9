"""The thirteen public scenes that papers compare on: where they lie below a data folder, and at which size they train."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Optional

from smoke_trainer.errors import SceneError


@dataclass(frozen=True)
class PublicScene:
    """A scene's data set and the divisor of its image size in the reference evaluation (images_4, images_2, images)."""

    dataset: str
    divisor: int


def _scenes(dataset: str, divisor: int, names: str) -> Dict[str, PublicScene]:
    return {name: PublicScene(dataset, divisor) for name in names.split()}


# Divisors: full_eval.py of the reference implementation (outdoor scenes use images_4, indoor scenes images_2).
PUBLIC_SCENES: Dict[str, PublicScene] = {
    **_scenes("Mip-NeRF 360, outdoor", 4, "bicycle flowers garden stump treehill"),
    **_scenes("Mip-NeRF 360, indoor", 2, "bonsai counter kitchen room"),
    **_scenes("Tanks and Temples", 1, "train truck"),
    **_scenes("Deep Blending", 1, "drjohnson playroom"),
}


def find_public(name: str, data: Path) -> Optional[Path]:
    """The folder of a scene directly below `data` or below one of its folders; None if it is not there."""
    places = [data / name, *sorted(path / name for path in data.glob("*") if path.is_dir())]
    return next((path for path in places if path.is_dir()), None)


def locate(name: str, data: Path) -> Path:
    """The folder of a public scene; a SceneError says which of them are there."""
    found = find_public(name, data)
    if found is None:
        there = [scene for scene in PUBLIC_SCENES if find_public(scene, data) is not None]
        raise SceneError(
            f"{name} is not below {data}",
            f"of the public scenes these are there: {', '.join(there) or 'none'}",
            "download the data set, or name another scene",
        )
    return found
