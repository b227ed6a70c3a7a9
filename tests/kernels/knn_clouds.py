"""Point clouds on which nearest neighbours are hard to find."""

from __future__ import annotations

import torch

KINDS = ["uniform", "clustered", "duplicated", "one point", "collinear", "planar", "grid", "far", "tiny"]


def cloud(kind: str, count: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    uniform = torch.rand(count, 3, generator=g, dtype=torch.float64)
    normal = torch.randn(count, 3, generator=g, dtype=torch.float64)
    if kind == "clustered":  # dense flat clusters of many sizes, and stragglers far away
        centres = torch.randn(12, 3, generator=g, dtype=torch.float64)
        which = torch.randint(0, 12, (count,), generator=g)
        size = 10.0 ** (-3 * torch.rand(12, 1, generator=g, dtype=torch.float64))
        points = centres[which] + normal * size[which] * torch.tensor([1.0, 0.5, 0.02])
        straggler = torch.rand(count, generator=g) < 0.05
        points[straggler] = normal[straggler] * 50
    elif kind == "duplicated":
        points = uniform[torch.randint(0, max(1, count // 6), (count,), generator=g)]
    elif kind == "one point":
        points = uniform[:1].expand(count, 3).clone()
    elif kind == "collinear":
        points = uniform[:, :1] * torch.tensor([1.0, -2.0, 0.5])
    elif kind == "planar":
        points = uniform * torch.tensor([1.0, 0.0, 1.0])
    elif kind == "grid":  # equal distances everywhere
        points = torch.randint(0, 5, (count, 3), generator=g).double()
    elif kind == "far":
        points = uniform + torch.tensor([1e5, -1e5, 1e5])
    elif kind == "tiny":
        points = uniform * 1e-12
    else:
        points = uniform
    return points.to(dtype)
