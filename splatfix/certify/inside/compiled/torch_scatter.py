"""``torch_scatter`` in plain PyTorch, for a rehearsal: reductions of rows by index, along one dimension.

Rows of the result that no index names are 0, also of maximum and minimum; the argument of these is then the size of ``src``.
"""

from __future__ import annotations

import functools
from typing import Any, Optional, Tuple

import torch
from torch import Tensor


def scatter(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Optional[Tensor] = None,
    dim_size: Optional[int] = None,
    reduce: str = "sum",
) -> Tensor:
    """``src`` reduced along ``dim`` to ``dim_size`` rows (default: the largest index + 1).

    ``index`` is int64, of the shape of ``src`` or one that broadcasts to it; one dimension is meant along ``dim``.
    ``out``, which no trainer was seen to give, is refused.
    """
    names = {"sum": "sum", "add": "sum", "mean": "mean", "mul": "prod", "max": "amax", "min": "amin"}
    if reduce not in names or out is not None:
        raise ValueError(
            f"splatfix's stand-in for torch_scatter has no {'out' if out is not None else reduce!r}"
        )
    rows = _broadcast(index, src, dim)
    shape = list(src.shape)
    shape[dim] = dim_size if dim_size is not None else (int(rows.max()) + 1 if rows.numel() else 0)
    made = src.new_zeros(shape)
    if reduce == "mul":
        made = made + 1
    return made.scatter_reduce(dim, rows, src, names[reduce], include_self=reduce == "mul")


scatter_add = scatter_sum = functools.partial(scatter, reduce="sum")
scatter_mean = functools.partial(scatter, reduce="mean")


def _broadcast(index: Tensor, src: Tensor, dim: int) -> Tensor:
    if index.dim() == 1 and src.dim() > 1:
        shape = [1] * src.dim()
        shape[dim] = -1
        index = index.view(shape)
    return index.expand_as(src)


def _extremes(
    reduce: str, src: Tensor, index: Tensor, dim: int = -1, out: Any = None, dim_size: Optional[int] = None
) -> Tuple[Tensor, Tensor]:
    """Maxima or minima, and where in ``src`` along ``dim`` each is first."""
    extremes = scatter(src, index, dim, out, dim_size, reduce)
    rows = _broadcast(index, src, dim)
    count = src.shape[dim]
    shape = [1] * src.dim()
    shape[dim] = -1
    places = torch.arange(count, device=src.device).view(shape).expand_as(src)
    is_it = src == extremes.gather(dim, rows)
    places = torch.where(is_it, places, torch.full_like(places, count))
    argument = torch.full(extremes.shape, count, dtype=torch.long, device=src.device)
    return extremes, argument.scatter_reduce(dim, rows, places, "amin", include_self=True)


scatter_max, scatter_min = functools.partial(_extremes, "max"), functools.partial(_extremes, "min")
