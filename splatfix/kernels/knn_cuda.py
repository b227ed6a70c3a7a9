"""`distCUDA2` on its CUDA kernels: knn.cu, and the sort along the curve."""

from __future__ import annotations

import torch
from torch import Tensor

from splatfix.kernels.nvrtc import module

_GROUP = 8
_MOST_POINTS = 2**31 - 512  # the kernels count points with 32 bits


def mean_of_three(points: Tensor) -> Tensor:
    """[P] mean squared distance to the 3 nearest others of at least 4 finite points [P, 3], float32 on a GPU."""
    count = points.shape[0]
    if count > _MOST_POINTS:
        raise ValueError(f"The kernels count {_MOST_POINTS} points, and these are {count}.")
    kernels = module("knn.cu", {}, points)
    points = points.detach().contiguous()
    bounds = torch.cat([points.amin(0), points.amax(0)])
    codes = torch.empty(count, dtype=torch.int64, device=points.device)
    kernels.launch("knn_codes", _blocks(count), 256, [points, bounds, count, codes])
    order = torch.sort(codes, stable=True)[1]
    points = points.index_select(0, order)
    sizes = [(count + _GROUP - 1) // _GROUP]
    while sizes[-1] > 1:
        sizes.append((sizes[-1] + _GROUP - 1) // _GROUP)
    boxes = points.new_empty(sum(sizes), 6)
    kernels.launch("knn_leaves", _blocks(sizes[0]), 256, [points, count, sizes[0], boxes[: sizes[0]]])
    start = 0
    for below, nodes in zip(sizes, sizes[1:]):
        children = boxes[start : start + below]
        start += below
        kernels.launch(
            "knn_nodes", _blocks(nodes), 256, [children, below, nodes, boxes[start : start + nodes]]
        )
    result = points.new_empty(count)
    kernels.launch("knn_search", _blocks(count, 128), 128, [points, boxes, order, count, result])
    return result


def _blocks(count: int, threads: int = 256) -> tuple[int, int, int]:
    return (count + threads - 1) // threads, 1, 1
