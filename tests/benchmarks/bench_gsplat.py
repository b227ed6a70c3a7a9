"""gsplat's `rasterization` on our module beside gsplat's own torch reference, `_rasterization`: forward and backward on a CPU.

python tests/benchmarks/bench_gsplat.py [--rounds 3] [--threads 1] [--json FILE]

CPU time of this process, the least of the rounds: on a busy machine wall-clock time says nothing. The reference asks our
module for the pairs of Gaussians and pixels, which is the smaller part of its time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import measuring
import torch
from torch import Tensor

from tests.kernels.gsplat.loading import loaded

CASES = ((2_000, 160, 120), (10_000, 160, 120), (30_000, 376, 250))
"""Gaussians, width, height."""


def scene(count: int, width: int, height: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A cloud that fills the image, as a trainer has it after some hundred steps; harmonics of degree 3."""
    generator = torch.Generator().manual_seed(1)
    leaves = {
        "means": torch.randn(count, 3, generator=generator),
        "quats": torch.randn(count, 4, generator=generator),
        "scales": (0.6 * torch.randn(count, 3, generator=generator) - 3.7).exp(),
        "opacities": torch.rand(count, generator=generator),
        "colors": 0.3 * torch.randn(count, 16, 3, generator=generator),
    }
    viewmat = torch.eye(4)
    viewmat[2, 3] = 4.0
    intrinsics = torch.tensor(
        [[1.1 * width, 0.0, width / 2], [0.0, 1.1 * width, height / 2], [0.0, 0.0, 1.0]]
    )
    camera = {
        "viewmats": viewmat[None],
        "Ks": intrinsics[None],
        "width": width,
        "height": height,
        "sh_degree": 3,
    }
    return {name: item.requires_grad_() for name, item in leaves.items()}, camera


def step(
    draw: Callable[..., Any], leaves: dict[str, Tensor], camera: dict[str, Any], upstream: Tensor
) -> None:
    """An image, and the gradients of all inputs."""
    image = draw(**leaves, **camera)[0]
    torch.autograd.grad((image * upstream).sum(), list(leaves.values()))


def main() -> None:
    parser = measuring.parser(__doc__, rounds=3)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows = []
    with loaded("1.5.3") as gsplat:
        from gsplat.rendering import _rasterization

        for count, width, height in CASES:
            leaves, camera = scene(count, width, height)
            upstream = torch.rand(1, height, width, 3, generator=torch.Generator().manual_seed(2))

            given_scene = (leaves, camera, upstream)
            ours = measuring.least(given.rounds, functools.partial(step, gsplat.rasterization, *given_scene))
            theirs = measuring.least(1, functools.partial(step, _rasterization, *given_scene))
            rows.append({"gaussians": count, "size": [width, height], "ours": ours, "reference": theirs})
            print(
                f"{count:6} Gaussians, {width} x {height}: {ours:6.3f} s on our module, "
                f"{theirs:7.2f} s by gsplat's torch reference, {theirs / ours:5.1f} times as long",
                flush=True,
            )
    measuring.keep({**measuring.conditions("torch", "gsplat"), "steps": rows}, given.json)


if __name__ == "__main__":
    main()
