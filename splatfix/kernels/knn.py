"""Exact nearest neighbours with the contract of `simple_knn._C.distCUDA2`, in plain PyTorch (first version)."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

__all__ = ["distCUDA2", "knn"]

DEFAULT_BUDGET_BYTES = 512 * 1024 * 1024


def distCUDA2(points: Tensor) -> Tensor:  # noqa: N802 - the extension's name
    """Mean of squared distances from each of [P, 3] points to its 3 nearest other points: [P]."""
    k = min(3, max(0, points.shape[0] - 1))
    squared, _ = knn(points, points, k + 1)
    missing = squared.new_full((points.shape[0], 3 - k), torch.finfo(torch.float32).max)
    return torch.cat([squared[:, 1:], missing], 1).sum(1) / 3


def knn(
    points: Tensor,
    queries: Tensor,
    k: int,
    *,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    engine: Optional[str] = None,
) -> tuple[Tensor, Tensor]:
    """Squared distances [Q, k], ascending, and indices [Q, k] of the k points nearest to each query."""
    try:
        from scipy.spatial import cKDTree
    except ImportError:
        return _brute(points, queries, k, budget_bytes)
    tree = cKDTree(points.detach().cpu().double().numpy(), balanced_tree=False, compact_nodes=False)
    _, found = tree.query(queries.detach().cpu().double().numpy(), k=list(range(1, k + 1)), workers=-1)
    index = torch.from_numpy(found).to(points.device)
    return (points[index] - queries[:, None]).square().sum(2), index


def _brute(points: Tensor, queries: Tensor, k: int, budget_bytes: int) -> tuple[Tensor, Tensor]:
    batch = max(1, budget_bytes // (32 * max(1, points.shape[0])))
    parts = [
        (points - q[:, None]).square().sum(2).topk(k, dim=1, largest=False) for q in queries.split(batch)
    ]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
