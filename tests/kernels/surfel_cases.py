"""What a rasterizer of surfels must draw: by the naive reference, in PyTorch, and by the CUDA kernels."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from tests.tables import data

from .gaussian_cases import at_their_ends, in_flat_buffers, with_opacities
from .scenes import Inputs, discs, edge_on, look_at
from .surfel_reference import render

SETTINGS = look_at(40, 30, fov=0.8)


class SurfelCase(NamedTuple):
    inputs: Inputs
    settings: Any = SETTINGS
    slack: float = 1.0
    """By which the CUDA kernels, in single precision throughout, may be off more."""


def with_transforms(inputs: Inputs) -> Inputs:
    """Tu, Tv and Tw in pixels, the original's `cov3D_precomp`, in the place of scales and rotations."""
    planes = render(SETTINGS, **inputs).planes.detach().reshape(-1, 9)
    inputs = {name: value for name, value in inputs.items() if name not in ("scales", "rotations")}
    return inputs | {"transforms": planes}


def needles() -> Inputs:
    inputs = discs(20, seed=9)
    inputs["scales"][:] = torch.tensor([0.8, 1e-4])
    return inputs


def of_any_length() -> Inputs:
    inputs = discs(15, seed=10)
    return inputs | {"rotations": inputs["rotations"] * 3}


def ties() -> Inputs:
    inputs = discs(8, seed=7, size=(0.3, 0.5))
    return {name: torch.cat([item, item]) for name, item in inputs.items()}


def disced(
    count: int, seed: int = 0, made: Any = (), view: Any = (), size: tuple[int, int] | None = None
) -> SurfelCase:
    """Random discs, with these options of them and of the camera."""
    inputs = discs(count, seed, **dict(made))
    return SurfelCase(inputs, look_at(*size, **dict(view)) if size else SETTINGS)


CASES: dict[str, Callable[[], SurfelCase]] = {
    **{name: lambda row=row: disced(**row) for name, row in data(__file__)["discs"].items()},
    "views": lambda: SurfelCase(in_flat_buffers(discs(25, seed=1))),
    "opaque stack": lambda: SurfelCase(with_opacities(discs(60, seed=5, spread=0.4, size=(0.5, 0.9)), 0.6)),
    "capped alpha": lambda: SurfelCase(with_opacities(discs(10, seed=6, size=(0.3, 0.5)), 0.999)),
    "ties": lambda: SurfelCase(ties()),
    "needles": lambda: SurfelCase(needles()),
    "edge-on by 0.1": lambda: SurfelCase(edge_on(0.1), slack=3),
    "edge-on by 1e-3": lambda: SurfelCase(edge_on(1e-3), slack=3),
    "quaternions of any length": lambda: SurfelCase(of_any_length()),
    "opacities at their ends": lambda: SurfelCase(at_their_ends(discs(60, seed=6))),
    "transforms": lambda: SurfelCase(with_transforms(discs(12, seed=43, size=(0.2, 0.5)))),
    "transforms of tiny ones": lambda: SurfelCase(with_transforms(discs(12, seed=43, size=(1e-3, 2e-3)))),
}
