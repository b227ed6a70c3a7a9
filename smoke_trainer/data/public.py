"""The thirteen public scenes of the field: the data set of each, the size at which it trains and its budget of Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict

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
    **_scenes(
        "Mip-NeRF 360, outdoor",
        4,
        15.0,
        {
            "bicycle": 5987095,
            "flowers": 3618411,
            "garden": 5728191,
            "stump": 4867429,
            "treehill": 3770257,
        },
    ),
    **_scenes(
        "Mip-NeRF 360, indoor",
        2,
        2.0,
        {
            "bonsai": 1252367,
            "counter": 1190919,
            "kitchen": 1803735,
            "room": 1548960,
        },
    ),
    **_scenes("Tanks and Temples", 1, 2.0, {"train": 1085480, "truck": 2584171}),
    **_scenes("Deep Blending", 1, 5.0, {"drjohnson": 3273600, "playroom": 2326100}),
}
