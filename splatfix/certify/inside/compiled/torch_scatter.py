"""``torch_scatter`` in plain PyTorch, for a rehearsal: what Scaffold-GS, Octree-GS and their like call of it.

Rows of the result that no index names are 0, also of a maximum.
"""

from __future__ import annotations

import functools
from typing import Optional, Tuple

from torch import Tensor

_NAMES = {"sum": "sum", "add": "sum", "mean": "mean", "max": "amax"}


def scatter(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: None = None,
    dim_size: Optional[int] = None,
    reduce: str = "sum",
) -> Tensor:
    """Return ``src`` reduced along ``dim`` to ``dim_size`` rows (default: the largest index + 1).

    ``index`` is of the shape of ``src`` or one that broadcasts to it; one dimension is meant along ``dim``.
    """
    if reduce not in _NAMES or out is not None:
        raise ValueError(f"splatfix's stand-in for torch_scatter has no reduce={reduce!r}, out={out}")
    shape = list(src.shape)
    if index.dim() == 1:
        index = index.view([-1 if place == dim % src.dim() else 1 for place in range(src.dim())])
    index = index.expand_as(src)
    if dim_size is None:
        dim_size = int(index.max()) + 1 if index.numel() else 0
    shape[dim] = dim_size
    return src.new_zeros(shape).scatter_reduce(dim, index, src, _NAMES[reduce], include_self=False)


scatter_add = scatter_sum = functools.partial(scatter, reduce="sum")
scatter_mean = functools.partial(scatter, reduce="mean")


def scatter_max(
    src: Tensor, index: Tensor, dim: int = -1, out: None = None, dim_size: Optional[int] = None
) -> Tuple[Tensor, None]:
    """Return maxima, and nothing in the place of where each was found, which no trainer was seen to read."""
    return scatter(src, index, dim, out, dim_size, "max"), None
