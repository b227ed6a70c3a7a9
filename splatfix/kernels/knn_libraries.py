"""Compiled k-d trees of other packages, where they are installed, queried in spatial order and in batches."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import torch
from torch import Tensor

from splatfix.kernels.knn_search import half_batch
from splatfix.kernels.knn_tree import spatial_order, squared_distance

# Each builds the library's tree and returns what answers queries: the indices of the k nearest, [Q, k] of some integer type.
_Ask = Callable[[Any, int], Any]


def _build_napf(module: Any, points: Any) -> _Ask:
    tree = module.KDT(points)
    return lambda queries, k: tree.knn_search(queries, k, torch.get_num_threads())[1]


def _build_pynanoflann(module: Any, points: Any) -> _Ask:
    tree = module.KDTree(metric="L2", leaf_size=10)
    tree.fit(points)
    return lambda queries, k: tree.kneighbors(queries, n_neighbors=k, n_jobs=torch.get_num_threads())[1]


def _build_pykdtree(module: Any, points: Any) -> _Ask:
    tree = module.KDTree(points)
    return lambda queries, k: tree.query(queries, k=k)[1]


def _build_scipy(module: Any, points: Any) -> _Ask:
    tree = module.cKDTree(points, balanced_tree=False, compact_nodes=False)
    return lambda queries, k: tree.query(queries, k=list(range(1, k + 1)), workers=-1)[1]


LIBRARIES: Dict[str, Tuple[str, Callable[[Any, Any], _Ask]]] = {
    "napf": ("napf", _build_napf),
    "pynanoflann": ("pynanoflann", _build_pynanoflann),
    "pykdtree": ("pykdtree.kdtree", _build_pykdtree),
    "scipy": ("scipy.spatial", _build_scipy),
}


def engine_module(engine: str) -> Optional[Any]:
    """The module of an engine, or None where it is not installed or does not load (built for another numpy)."""
    try:
        importlib.import_module("numpy")
        return importlib.import_module(LIBRARIES[engine][0])
    except (ImportError, AttributeError, OSError, RuntimeError, ValueError):
        return None


_Answer = Callable[[Tensor, int], Tuple[Tensor, Tensor]]


def library_search(engine: str, points: Tensor) -> _Answer:
    """A compiled tree over the points; queries return squared distances and indices [Q, k]."""
    ask = LIBRARIES[engine][1](engine_module(engine), points.numpy())

    def answer(queries: Tensor, k: int) -> Tuple[Tensor, Tensor]:
        index = torch.as_tensor(ask(queries.contiguous().numpy(), k).astype("int64")).view(-1, k)
        # Recomputed as differences: some libraries round theirs.
        squared = [squared_distance(points[column].t(), queries.t()) for column in index.unbind(1)]
        return torch.stack(squared, 1), index

    return answer


def in_spatial_order(
    answer: _Answer, queries: Tensor, k: int, budget_bytes: int
) -> Iterator[Tuple[Tensor, Tensor, Tensor]]:
    """Query along a Morton curve, in batches: rows in `queries`, squared distances and indices."""
    order = spatial_order(queries)
    # A query: itself and its copies, its answer as the library gives it and as we do, distances and gathered points.
    # A quarter of the budget is enough for that; order and tree need the rest.
    batch = max(1, budget_bytes // 4 // (128 + 48 * k))
    start = 0
    while start < order.shape[0]:
        rows = order[start : start + batch]
        try:
            squared, index = answer(queries.index_select(0, rows), k)
        except (RuntimeError, MemoryError) as error:
            batch = half_batch(batch, 1, error)
            continue
        start += batch
        yield rows, squared, index


def choose_engine(engine: Optional[str], points: Tensor) -> str:
    """The engine asked for, or the first that serves these points. Raises ValueError for one that does not."""
    if points.device.type != "cpu":
        if engine not in (None, "torch"):
            raise ValueError(
                f'Engine "{engine}" works on CPU tensors only; use engine="torch" on {points.device}.'
            )
        return "torch"
    if engine is None:
        return next((name for name in LIBRARIES if engine_module(name) is not None), "torch")
    if engine != "torch" and (engine not in LIBRARIES or engine_module(engine) is None):
        known = ", ".join([*LIBRARIES, "torch"])
        raise ValueError(
            f'Engine "{engine}" is not installed here or unknown (known: {known}). Use engine="torch".'
        )
    return engine
