"""A balanced k-d tree of points in plain torch: built by halving, with the boxes of all its nodes. See `knn.py`."""

from __future__ import annotations

from threading import Thread
from typing import Any, Callable, List, NamedTuple, Sequence

import torch
from torch import Tensor

_MOST_POINTS_PER_LEAF = 11
# Numbers whose order is found at once while the tree is built.
SORTED_AT_ONCE = 1 << 20
# Coordinate of padding: its squared distance is the largest float to any point, and 0 to itself, never NaN.
_FAR_AWAY = 1e30
# Rounding of a box distance against that of a point distance: keep what is this close to the bound.
SLACK = 1 + 1e-5


class Tree(NamedTuple):
    """A balanced k-d tree: level l has 2^l nodes, the last level's nodes are leaves of `size` points each."""

    depth: int
    size: int
    rows: Tensor
    """[leaves, 3 * size]: a leaf's x, then its y, then its z; padding is `_FAR_AWAY`."""
    ids: Tensor
    """[leaves * size] int32 (int64 for more than 2^31): where a point was in the input; padding has the number of points."""
    boxes: List[List[Tensor]]
    """Per level six [nodes] tensors: low x, y, z and high x, y, z."""

    def held(self) -> int:
        tensors = [self.rows, self.ids, *(side for level in self.boxes for side in level)]
        return sum(t.numel() * t.element_size() for t in tensors)


def in_parallel(work: Callable[[Any], None], parts: Sequence[Any], threads: int) -> None:
    """Run `work` on every part, in so many threads at most. The caller has seen to it that one operation has one thread."""
    shared, errors = iter(parts), []

    def work_on_the_rest() -> None:
        try:
            for part in shared:
                work(part)
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    started: List[Thread] = []
    try:
        for _ in range(min(threads, len(parts)) - 1):
            thread = Thread(target=work_on_the_rest)
            thread.start()
            started.append(thread)
    except (RuntimeError, MemoryError):
        pass  # a limit of processes or memory: those that could be started, and this one, do it all
    work_on_the_rest()
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]


def build_tree(points: Tensor, threads: int) -> Tree:
    """Sort the points into the leaves of a balanced tree; each level halves every node along its widest side."""
    count, depth = points.shape[0], 0
    while _MOST_POINTS_PER_LEAF << depth < count:
        depth += 1
    size = -(-count // (1 << depth))
    total = size << depth
    # Half the memory of int64, which is what this phase holds most of.
    index_type = torch.int32 if total < 2**31 else torch.int64
    ids = torch.arange(total, dtype=index_type, device=points.device)
    # Leaves are all full: copies of points spread evenly over the input fill the gap, and are replaced by padding at the end.
    ids[count:] = torch.arange(total - count, device=points.device) * count // max(1, total - count)
    xyz = [points[:, axis].index_select(0, ids) for axis in range(3)]
    ids[count:] = count
    together = 0  # levels that are halved before the nodes below are shared among threads
    while threads > 1 and 1 << together < 4 * threads and together < depth:
        together += 1
    _halve([*xyz, ids], together)
    below = list(zip(*(column.view(1 << together, -1) for column in (*xyz, ids))))
    in_parallel(lambda columns: _halve(columns, depth - together), below, threads)
    low = [side.view(1 << depth, -1).amin(1) for side in xyz]
    high = [side.view(1 << depth, -1).amax(1) for side in xyz]
    levels = [low + high]
    for _ in range(depth):
        low = [side.view(-1, 2).amin(1) for side in low]
        high = [side.view(-1, 2).amax(1) for side in high]
        levels.append(low + high)
    rows = torch.stack([side.view(-1, size) for side in xyz], 1).view(-1, 3 * size)
    padding = (ids == count).view(-1, 1, size)
    rows.view(-1, 3, size).masked_fill_(padding, _FAR_AWAY)
    return Tree(depth, size, rows, ids, levels[::-1])


def _halve(columns: Sequence[Tensor], levels: int) -> None:
    """Sort points, given by their x, y, z and ids, in place: so many levels of nodes, each halved along its widest side."""
    ids, total = columns[3], columns[3].numel()
    for level in range(levels):
        nodes, length = 1 << level, total >> level
        split = [side.view(nodes, length) for side in columns[:3]]
        widest = torch.stack([s.amax(1) - s.amin(1) for s in split]).argmax(0)
        values = split[0].clone()
        for axis in (1, 2):
            chosen = (widest == axis).nonzero().view(-1)
            values[chosen] = split[axis].index_select(0, chosen)
        order = torch.empty(nodes, length, dtype=ids.dtype, device=ids.device)
        step = max(1, SORTED_AT_ONCE // length)
        for start in range(0, nodes, step):
            _halves(values[start : start + step], order[start : start + step])
        del values
        firsts = torch.arange(0, total, length, dtype=ids.dtype, device=ids.device)
        order = order.add_(firsts.unsqueeze(1)).view(-1)
        for column in columns:
            column.copy_(column.index_select(0, order))


def _halves(values: Tensor, order: Tensor) -> None:
    """Fill `order` [nodes, length] so that it puts the smaller half of each row of `values` first. Selecting is enough
    for long rows on a CPU."""
    nodes, length = values.shape
    if length <= 64 or values.device.type != "cpu":
        order.copy_(values.argsort(1))
        return
    half = length // 2
    order[:, :half] = values.topk(half, dim=1, largest=False, sorted=False)[1]
    upper = torch.ones(nodes, length, dtype=torch.bool).scatter_(1, order[:, :half].long(), False)
    # Row by row, so that the flat positions of the upper half count from the start of their row.
    above = upper.view(-1).nonzero().view(nodes, -1)
    order[:, half:] = above.sub_(torch.arange(0, nodes * length, length).unsqueeze(1))


def boxes_of_levels(leaves: Tensor, depth: int) -> List[Tensor]:
    """The largest value below each node, level by level; with a little slack for rounding."""
    levels = [leaves * SLACK]
    for _ in range(depth):
        levels.append(levels[-1].view(-1, 2).amax(1))
    return levels[::-1]


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """Sum of squared differences over the first dimension (3)."""
    gaps = a - b
    gaps.mul_(gaps)
    return gaps[0].add_(gaps[1]).add_(gaps[2])


def box_distance(boxes: Sequence[Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Squared gap between box a[i] and box b[i]; 0 where they overlap."""
    total = None
    for low, high in zip(boxes[:3], boxes[3:]):
        gap = low.index_select(0, b).sub_(high.index_select(0, a))
        other = low.index_select(0, a).sub_(high.index_select(0, b))
        gap = torch.maximum(gap, other, out=gap).clamp_(min=0)
        total = gap.mul_(gap) if total is None else total.addcmul_(gap, gap)
    assert total is not None
    return total


def point_to_box(xyz: Tensor, boxes: Sequence[Tensor], node: Tensor) -> Tensor:
    """Squared distance from point xyz[:, i] to box node[i]; 0 inside."""
    total = torch.zeros_like(xyz[0])
    for value, low, high in zip(xyz, boxes[:3], boxes[3:]):
        gap = torch.maximum(low.index_select(0, node) - value, value - high.index_select(0, node)).clamp_(
            min=0
        )
        total.addcmul_(gap, gap)
    return total


def spatial_order(points: Tensor) -> Tensor:
    """The order of the points along a Morton curve: consecutive queries visit the same nodes."""
    low = points.amin(0)
    scale = (points.amax(0) - low).amax().clamp(min=torch.finfo(points.dtype).tiny)
    key = torch.zeros(points.shape[0], dtype=torch.int64, device=points.device)
    step = SORTED_AT_ONCE >> 2
    for start in range(0, points.shape[0], step):
        cells = ((points[start : start + step].double() - low) / scale * ((1 << 21) - 1)).long()
        for axis in range(3):
            bits = cells[:, axis]
            for shift, mask in (
                (32, 0x1F00000000FFFF),
                (16, 0x1F0000FF0000FF),
                (8, 0x100F00F00F00F00F),
                (4, 0x10C30C30C30C30C3),
                (2, 0x1249249249249249),
            ):
                bits = (bits | (bits << shift)) & mask
            key[start : start + step] |= bits << axis
    return key.argsort()
