"""What a rasterizer of Gaussians must draw: by the naive reference, in PyTorch, and by the CUDA kernels.

A case is here once; `test_rasterizer.py` holds PyTorch against the reference with it, `cuda/test_rasterizer.py` the emulated CUDA
kernels against PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.tables import data

from .scenes import Inputs, cloud, look_at, rand


class Case(NamedTuple):
    settings: Any
    inputs: Inputs
    columns: int = 3
    """Of `means2D`."""
    slack: float | None = 1.0
    """By which the CUDA kernels may be off more in float32, which they use throughout; None where that is not enough."""


def one(
    position: Sequence[float],
    scale: Sequence[float] = (0.2, 0.2, 0.2),
    rotation: Sequence[float] = (1.0, 0.0, 0.0, 0.0),
    opacity: float = 0.8,
) -> Inputs:
    """A single red Gaussian."""
    rows = {
        "means3D": position,
        "opacities": [opacity],
        "colors_precomp": [0.9, 0.1, 0.05],
        "scales": scale,
        "rotations": rotation,
    }
    return {name: torch.tensor([row], dtype=torch.float64) for name, row in rows.items()}


def joined(*scenes: Inputs) -> Inputs:
    return {name: torch.cat([scene[name] for scene in scenes]) for name in scenes[0]}


def with_opacities(inputs: Inputs, opacities: Tensor | float) -> Inputs:
    return inputs | {"opacities": torch.zeros_like(inputs["opacities"]) + opacities}


def faint(count: int, factor: float, **options: Any) -> Inputs:
    """So that pixels see many."""
    inputs = cloud(count, **options)
    return with_opacities(inputs, inputs["opacities"] * factor)


def in_flat_buffers(inputs: Inputs) -> Inputs:
    """Views that begin with the second number of a tensor."""
    return {
        name: torch.cat([item.new_zeros(1), item.reshape(-1)])[1:].view_as(item)
        for name, item in inputs.items()
    }


def at_their_ends(inputs: Inputs) -> Inputs:
    """Opacities: none, all, and about the smallest that is drawn and the largest that is not cut."""
    levels = torch.tensor([0.0, 1.0, 1 / 255, 0.0039, 0.004, 0.99, 1e-20], dtype=torch.float64)
    return with_opacities(inputs, levels.repeat(9)[: len(inputs["means3D"]), None])


def alike(count: int) -> Inputs:
    """All in one place: those of equal depth keep the order of the input."""
    inputs = joined(*[cloud(1, precomputed=True)] * count)
    return inputs | {"colors_precomp": rand(count, 3, seed=4)}


def outside_the_frustum() -> Inputs:
    """Wide ones whose centres lie outside 1.3 tan(fov / 2), on all four sides, and reach into the image; and one within."""
    outside = [one((side * 2.6, 0.2, 0.1), (0.8, 0.5, 0.6), opacity=0.7) for side in (-1, 1)]
    outside += [one((0.3, side * 2.7, -0.2), (0.5, 0.9, 0.7), opacity=0.7) for side in (-1, 1)]
    return joined(*outside, one((0.1, 0.1, 0.0)))


def long_needles() -> Inputs:
    """Far longer than the image: cov2D's determinant loses six digits."""
    needles = []
    for k in range(6):
        turn = (math.cos(0.4 * k), 0.1, 0.2, math.sin(0.4 * k))
        needles.append(one((0.1 * k - 0.2, 0.05, 0.2 * k), (40.0, 0.004, 0.004), turn, 0.7))
    return joined(*needles)


def wall() -> Inputs:
    """Layers that are seen through less and less: every pixel stops."""
    layers = []
    for k in range(40):
        layers.append(one((0.02 * k, 0.01 * k, 0.05 * k), (3.0, 3.0, 0.05), opacity=0.7 + 0.02 * (k % 10)))
    return joined(*layers)


def saddle() -> Inputs:
    """xx > 0, yy < 0 after projection and low-pass: where the power is positive, nothing is drawn."""
    inputs = one((0.0, 0.0, 0.0), opacity=0.5)
    del inputs["scales"], inputs["rotations"]
    return inputs | {"cov3D_precomp": torch.tensor([[0.05, 0.0, 0.0, -0.05, 0.0, 0.01]], dtype=torch.float64)}


def shaped(*scale: float) -> Inputs:
    """One of this shape in front of another."""
    turn = torch.nn.functional.normalize(torch.tensor([0.3, 0.5, -0.2, 0.7], dtype=torch.float64), dim=0)
    return joined(one((0.05, 0.1, 0.3), scale, turn.tolist(), 0.6), one((-0.3, 0.2, 0.9), opacity=0.5))


TABLE = data(__file__)
SHIFTS = {"subpixel_offset": rand(37, 50, 2, seed=2) - 0.5}
OPTIONS: dict[str, dict[str, Any]] = {
    **TABLE["options"],
    "shifted pixels": SHIFTS,
    "shifted pixels, kernel_size": {"kernel_size": 0.1, **SHIFTS},
}


def clouded(size: tuple[int, int], count: int, view: Any = (), made: Any = (), **case: Any) -> Case:
    """A cloud before a camera, with these options of each."""
    return Case(look_at(*size, **dict(view)), cloud(count, **dict(made)), **case)


CASES: dict[str, Callable[[], Case]] = {
    **{
        name: lambda options=options: clouded((50, 37), 30, options, {"size": (0.003, 0.3)})
        for name, options in OPTIONS.items()
    },
    **{
        f"{name}, covariances and colours": lambda options=OPTIONS[name]: clouded(
            (50, 37), 30, options, {"precomputed": True, "covariance": True}
        )
        for name in ("plain", "antialiasing", "kernel_size 0.1", "FastGS, half")
    },
    **{name: lambda row=row: clouded(**row) for name, row in TABLE["clouds"].items()},
    "views": lambda: Case(look_at(40, 30), in_flat_buffers(cloud(30))),
    "opacities at their ends": lambda: Case(look_at(40, 30), at_their_ends(cloud(60))),
    "opacities beyond their ends": lambda: Case(
        look_at(48, 40),
        # no balls: their rotations have no gradient, and in single precision the rounding of what cancels out
        joined(
            one((-0.3, 0, 0), (0.3, 0.2, 0.1), opacity=3.0),
            one((0.3, 0.1, 0.1), (0.3, 0.2, 0.1), opacity=-0.5),
        ),
    ),
    "quaternions of another length": lambda: Case(look_at(25, 25), stretched(cloud(12))),
    "equal depths": lambda: Case(look_at(24, 20), alike(60)),
    "a wall": lambda: Case(look_at(20, 20), wall(), slack=3),
    "pixels stop in many blocks of depth": lambda: Case(
        look_at(12, 12), faint(150, 0.25, spread=0.3, size=(0.05, 0.6), precomputed=True), slack=3
    ),
    "outside the frustum": lambda: Case(look_at(24, 24, fov=0.7, roll=0.0), outside_the_frustum(), slack=20),
    "needles": lambda: Case(look_at(60, 44), long_needles(), slack=None),
    "needle, kernel_size": lambda: Case(
        look_at(24, 20, kernel_size=0.05), one((0.05, 0.1, 0.3), (2.0, 1e-6, 1e-6)), slack=None
    ),
    "wide": lambda: Case(look_at(40, 31), shaped(30.0, 30.0, 30.0), slack=20),
    "a line": lambda: Case(look_at(40, 31), shaped(5.0, 0.001, 0.001), slack=20),
    "a point": lambda: Case(look_at(40, 31), shaped(0.0, 0.0, 0.0), slack=None),
    "a plane": lambda: Case(look_at(40, 31), shaped(3.0, 3.0, 0.0), slack=20),
    "a saddle": lambda: Case(look_at(33, 33, roll=0.0), saddle(), slack=None),
}


def stretched(inputs: Inputs) -> Inputs:
    """They are used as given, not normalised."""
    return inputs | {"rotations": inputs["rotations"] * 1.3}
