"""Exact nearest neighbors with the contract of `simple_knn._C.distCUDA2`, on any device that torch runs on.

Contract of `distCUDA2(points)`: for each of [P, 3] points the mean of the *squared* distances to its 3 nearest other points.
"Other" means another index, so a duplicate counts with distance 0. The search is exact: it sees all points, whatever
the batches. With fewer than 4 points the extension adds FLT_MAX for each neighbor that is missing: P = 3 gives about
1.13e38, P = 2 and P = 1 give inf; so does this file.

Engines. On a CPU scipy's k-d tree where it is installed, queried in the tree's own order, which is twice as fast. On a GPU
`distCUDA2` runs in single precision on the kernels of knn_cuda.py where they can be had. Otherwise plain torch:

1. the points are sorted into the leaves of a balanced k-d tree by halving along the widest side, all nodes of a level at once;
2. all pairs inside blocks of some 32 neighboring points give each point a first bound;
3. many leaves at once walk down the tree, each to the leaves of other blocks that are closer than its bound, and look at
   their points, nearest leaf first, until no candidate is closer than the bound;
4. leaves for which that would mean too many candidates (stragglers beside a dense cluster) are walked point by point.

Distances are always sums of squared differences; the expansion |a|^2 + |b|^2 - 2ab loses the significant digits.

Memory. The sorted points, their boxes and the result take about 25 bytes per point in single precision; the search uses what
`budget_bytes` leaves beside them, or an eighth of it where that is more (above some 18 million points). scipy's tree takes
what it takes, and is queried in batches that fit the budget. When memory runs out nevertheless, the batch is halved, with
one warning.

With knn_search.py beside it this file needs torch >= 1.13 and nothing else.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from splatfix.kernels.knn_search import in_halves, mean_by_torch

__all__ = ["distCUDA2", "last_engine"]

DEFAULT_BUDGET_BYTES = 512 * 1024 * 1024
"""What a search may hold beside its input and its result: 512 MiB."""

_last_engine = "none"


def distCUDA2(
    points: Tensor, *, budget_bytes: int = DEFAULT_BUDGET_BYTES, engine: Optional[str] = None
) -> Tensor:
    """Mean of squared distances from each of [P, 3] points to its 3 nearest other points: [P], dtype and device as given.

    Args:
        points: [P, 3], float32 or float64, finite.
        budget_bytes: memory for the search beside input and result; see the docstring of this file.
        engine: "scipy" or "torch"; by default the fastest available; see `last_engine()`.

    Raises:
        ValueError, TypeError: wrong shape, dtype, values or engine; the message says what to change.
    """
    global _last_engine
    if points.dim() != 2 or points.shape[1] != 3:
        raise ValueError(f"points must have shape [N, 3], not {tuple(points.shape)}.")
    if points.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"points must be float32 or float64, not {points.dtype}; call .float() first.")
    points, count = points.detach(), points.shape[0]
    if not bool(torch.isfinite(points).all()):
        bad = int((~torch.isfinite(points).all(1)).sum())
        raise ValueError(f"{bad} of the {count} points hold NaN or infinity; remove them first.")
    if count < 4:
        # every missing neighbor counts as FLT_MAX, in single precision, as in the extension
        _last_engine = "torch"
        squared = (points.unsqueeze(0) - points.unsqueeze(1)).square_().sum(2).float()
        squared.fill_diagonal_(torch.finfo(torch.float32).max)
        missing = squared.new_full((count, 4), torch.finfo(torch.float32).max)
        nearest = torch.cat([squared, missing], 1).sort(1)[0]
        return ((nearest[:, 0] + nearest[:, 1] + nearest[:, 2]) / 3).to(points.dtype)
    spatial = _scipy_spatial() if points.device.type == "cpu" else None
    if engine not in (None, "torch") and (engine != "scipy" or spatial is None):
        raise ValueError(
            f'Engine "{engine}" is unknown, or not installed for {points.device}. Use engine="torch".'
        )
    on_gpu = _by_cuda_kernels(points) if engine is None else None
    if on_gpu is not None:
        _last_engine, result = "nvrtc", on_gpu
    elif spatial is None or engine == "torch":
        _last_engine, result = "torch", mean_by_torch(points, budget_bytes)
    else:
        _last_engine, result = "scipy", _by_scipy(spatial, points, budget_bytes)
    return result


def _scipy_spatial() -> Optional[Any]:
    """The module of scipy's tree, or None where it is not installed or does not load (built for another numpy)."""
    try:
        import scipy.spatial
    except (ImportError, AttributeError, OSError, RuntimeError, ValueError):
        return None
    return scipy.spatial


def _by_scipy(spatial: Any, points: Tensor, budget_bytes: int) -> Tensor:
    tree = spatial.cKDTree(points.numpy(), balanced_tree=False, compact_nodes=False)
    order = torch.from_numpy(tree.indices)
    result = torch.empty(points.shape[0], dtype=points.dtype)

    def ask(here: slice) -> None:
        rows = order[here]
        distances = torch.from_numpy(tree.query(points[rows].numpy(), k=4, workers=-1)[0])
        # Of the four nearest, one zero is the point itself, whichever duplicate scipy named first.
        result[rows] = distances[:, 1:].square().to(points.dtype).mean(1)

    # A query and its copies, its answer as scipy gives it and as we do: a quarter of the budget, as the tree needs the rest.
    batch = max(1, budget_bytes // 4 // 256)
    for start in range(0, points.shape[0], batch):
        in_halves(ask, slice(start, min(start + batch, points.shape[0])))
    return result


def _by_cuda_kernels(points: Tensor) -> Optional[Tensor]:
    """`distCUDA2` by CUDA kernels, where they lie beside this file and serve these points; else None."""
    if not points.is_cuda:
        return None
    try:
        from splatfix.kernels.knn_cuda import mean_of_three
        from splatfix.kernels.nvrtc import by_kernels
    except ImportError:  # a copy without them
        return None
    distances: Optional[Tensor] = by_kernels("knn", points, lambda: mean_of_three(points))
    return distances


def last_engine() -> str:
    """The engine of the last call in this process, or "none"."""
    return _last_engine
