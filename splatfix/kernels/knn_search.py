"""The mean of three nearest for all points at once, in plain torch: a tree of leaves, and their search. `knn.py` tells how."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Callable, List, Optional, Tuple

import torch
from torch import Tensor

_MOST_POINTS_PER_LEAF = 11
# Children of a node, and leaves of a block.
_FAN = 4
# Numbers whose order is found at once while the points are sorted.
_SORTED_AT_ONCE = 1 << 18
# Coordinate of padding: its squared distance is the largest float to any point, and 0 to itself, never NaN.
_FAR_AWAY = 1e30
# A leaf with more candidate leaves than this is searched point by point.
_MOST_CANDIDATES = 64
# Pairs of a leaf and a node in flight on a CPU: their arrays should stay in its cache. A GPU takes what the budget allows.
_CPU_PAIRS = 1 << 16
# The node's four children: gathered sides, gaps, squares, distance and mask; then the numbers of leaf and child.
_BYTES_PER_PAIR = 512
# Such pairs of a leaf, in most clouds.
_PAIRS_PER_LEAF = 24


def mean_by_torch(points: Tensor, budget_bytes: int) -> Tensor:
    """[P] mean squared distance to the 3 nearest others of at least 4 finite points [P, 3], in plain torch."""
    on_cpu = points.device.type == "cpu"
    threads = torch.get_num_threads() if on_cpu else 1
    if on_cpu:
        # Whole parts of the work go to one thread each: single operations are too small to be worth sharing, and
        # torch's own threads wait for each other by spinning, beside any other that is busy.
        torch.set_num_threads(1)
    try:
        # A caller's inference mode would be of its own thread only.
        with torch.inference_mode(False):
            return _Search(points, budget_bytes, threads).run()
    finally:
        if on_cpu:
            torch.set_num_threads(threads)


class _Search:
    """Points in the leaves of a balanced tree: each level halves all nodes along their widest sides.

    size: points of each leaf, padding included
    ids: [leaves, size] where they were in the input; padding has the number of points
    rows: [leaves, 3 * size] a leaf's x, then its y, then its z; padding is `_FAR_AWAY`
    levels: from the root's children to the leaves, nodes' low and high corners [2, 3, parents, children], and how many
        points they hold [parents, children]
    """

    def __init__(self, points: Tensor, budget_bytes: int, threads: int) -> None:
        self.count, self.threads = points.shape[0], threads
        leaves = _FAN
        while _MOST_POINTS_PER_LEAF * leaves < self.count:
            leaves *= 2
        self.size = -(-self.count // leaves)
        total = self.size * leaves
        # Half the memory of int64, which is what sorting holds most of.
        index_type = torch.int32 if total < 2**31 else torch.int64
        ids = torch.arange(total, dtype=index_type, device=points.device)
        # Leaves are all full: copies of points spread evenly over the input fill the gap, and become padding at the end.
        missing = total - self.count
        ids[self.count :] = torch.arange(missing, device=points.device) * self.count // max(1, missing)
        columns = [points[:, axis].index_select(0, ids) for axis in range(3)]
        ids[self.count :] = self.count
        columns.append(ids)
        nodes = 1
        while nodes < leaves:
            columns = [column.view(nodes, -1) for column in columns]
            at_once = max(1, min(_SORTED_AT_ONCE // columns[0].shape[1], nodes // threads))
            self._in_parallel(partial(_halve, columns), nodes, at_once)
            nodes *= 2
        *xyz, self.ids = (column.view(leaves, self.size) for column in columns)
        del columns
        box = torch.stack([torch.stack([op(side, 1) for side in xyz]) for op in (torch.amin, torch.amax)])
        padding = self.ids == self.count
        self.rows = torch.stack(xyz, 1).masked_fill_(padding.unsqueeze(1), _FAR_AWAY).view(leaves, -1)
        real = (~padding).sum(1)
        self.levels: List[Tuple[Tensor, Tensor]] = []
        while real.numel() > _FAN:
            box, real = box.view(2, 3, -1, _FAN), real.view(-1, _FAN)
            self.levels.insert(0, (box, real))
            box, real = torch.stack([box[0].amin(2), box[1].amax(2)]), real.sum(1)
        self.levels.insert(0, (box.unsqueeze(2), real.unsqueeze(0)))
        held = points[:, 0].numel() * points.element_size()  # the result
        for kept in (self.ids, self.rows, *(tensor for level in self.levels for tensor in level)):
            held += kept.numel() * kept.element_size()
        self.most_pairs = max(budget_bytes - held, budget_bytes // 8) // threads // _BYTES_PER_PAIR
        if points.device.type == "cpu":
            self.most_pairs = min(self.most_pairs, _CPU_PAIRS)

    def _in_parallel(self, work: Callable[[slice], None], count: int, batch: int) -> None:
        """Call `work` on slices of so many of `count`, in threads where there are several."""
        slices = [slice(start, min(start + batch, count)) for start in range(0, count, batch)]
        if self.threads == 1 or len(slices) == 1:
            for here in slices:
                work(here)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            for _ in pool.map(work, slices):
                pass

    def run(self) -> Tensor:
        """Mean of the three smallest squared distances to others, in input order."""
        result = self.rows.new_empty(self.count + 1)  # the last is that of padding
        blocks = self.ids.shape[0] // _FAN

        def search(here: slice) -> None:
            here = slice(here.start * _FAN, here.stop * _FAN)
            result[self.ids[here].t().long()] = self._means(here)

        batch = min(self.most_pairs // (_PAIRS_PER_LEAF * _FAN), -(-blocks // (2 * self.threads)))
        self._in_parallel(partial(in_halves, search), blocks, max(1, batch))
        return result[: self.count]

    def _means(self, here: slice) -> Tensor:
        """[size, n]: what `run` returns, for the points of n leaves, which are whole blocks."""
        mine = self.rows[here].t().contiguous().view(3, self.size, -1)
        best = self._within_blocks(mine)
        # Padding needs no neighbors: below every distance, it never widens the bound of its leaf.
        best.masked_fill_((self.ids[here] == self.count).t(), -1.0)
        blocks = torch.arange(here.start, here.stop, device=mine.device) // _FAN
        box = self.levels[-1][0].flatten(2)[:, :, here]
        crowded = self._improve(mine, best, box, blocks, _MOST_CANDIDATES).nonzero().view(-1)
        if crowded.numel():
            points = mine.index_select(2, crowded).view(3, 1, -1)
            theirs = best.index_select(2, crowded).view(3, 1, -1)
            blocks = blocks.index_select(0, crowded).repeat(self.size)
            self._improve(points, theirs, points.view(1, 3, -1).expand(2, 3, -1), blocks, self.ids.shape[0])
            best[:, :, crowded] = theirs.view(3, self.size, -1)
        return best.sum(0).div_(3)

    def _within_blocks(self, mine: Tensor) -> Tensor:
        """[3, size, n]: each point's three smallest squared distances inside its block."""
        xyz = mine.view(3, self.size, -1, _FAN).transpose(2, 3).reshape(3, self.size * _FAN, -1)
        best = torch.full_like(xyz, float("inf"))
        for other in range(xyz.shape[1]):
            squared = _sum_of_squares(xyz - xyz[:, other : other + 1])
            squared[other] = float("inf")
            _insert(best, squared)
        return best.view(3, self.size, _FAN, -1).transpose(2, 3).reshape(mine.shape)

    def _improve(self, mine: Tensor, best: Tensor, box: Tensor, blocks: Tensor, most: int) -> Tensor:
        """Sort the points of other blocks into `best`. Return [n] which groups have more than `most` candidates: they are left.

        n groups of m points: coordinates `mine` and distances so far `best` [3, m, n], corners `box` [2, 3, n], `blocks` [n].
        """
        count = blocks.numel()
        found = self._candidates(box, best[2].amax(0), most)
        if found is None:
            halves = []
            for half in (slice(0, count // 2), slice(count // 2, count)):
                parts = (mine[:, :, half], best[:, :, half], box[:, :, half], blocks[half])
                halves.append(self._improve(*parts, most))
            return torch.cat(halves)
        crowded, groups, leaves, near = found
        elsewhere = (leaves // _FAN != blocks.index_select(0, groups)).nonzero().view(-1)
        self._compare(mine, best, *(t.index_select(0, elsewhere) for t in (groups, leaves, near)))
        return crowded

    def _candidates(self, box: Tensor, bound: Tensor, most: int) -> Optional[Tuple[Tensor, ...]]:
        """Find the leaves that are closer to a group than its bound: which groups have more than `most`, and of all others
        the pairs, as group, leaf and squared distance. None: too many at once."""
        count = bound.numel()
        groups = torch.arange(count, device=bound.device)
        nodes = torch.zeros_like(groups)
        near, reach = bound, torch.full_like(bound, float("inf"))
        crowded = torch.zeros_like(groups, dtype=torch.bool)
        for corners, points in self.levels:
            if groups.numel() > self.most_pairs and count > 1:
                return None
            ours, theirs = box.index_select(2, groups).unsqueeze(3), corners.index_select(2, nodes)
            # Both are rounded as the distances of points are: none in the box is nearer or farther.
            near = _sum_of_squares(torch.maximum(theirs[0] - ours[1], ours[0] - theirs[1]).clamp_(min=0))
            far = _sum_of_squares(torch.maximum(theirs[1] - ours[0], ours[1] - theirs[0]))
            # Of four points in a box three are others, and no farther: dense clusters need not be seen as a whole.
            far.masked_fill_(points.index_select(0, nodes) < 4, float("inf"))
            reach.scatter_reduce_(0, groups, far.amin(1), "amin")
            close = near < bound.index_select(0, groups).unsqueeze(1)
            close &= near <= reach.index_select(0, groups).unsqueeze(1)
            kept, child = close.nonzero().unbind(1)
            near = near[kept, child]
            groups = groups.index_select(0, kept)
            nodes = nodes.index_select(0, kept).mul_(_FAN).add_(child)
            crowded |= torch.bincount(groups, minlength=count) > most
            if bool(crowded.any()):
                fine = (~crowded).index_select(0, groups).nonzero().view(-1)
                groups, nodes, near = (t.index_select(0, fine) for t in (groups, nodes, near))
        return crowded, groups, nodes, near

    def _compare(self, mine: Tensor, best: Tensor, groups: Tensor, leaves: Tensor, near: Tensor) -> None:
        """Sort the points of each group's candidate leaves into `best`: all groups at once, the nearest leaf of each first."""
        order = near.argsort()
        order = order.index_select(0, groups.index_select(0, order).sort(stable=True)[1])
        leaves = leaves.index_select(0, order)
        near = torch.cat([near.index_select(0, order), near.new_full((1,), float("inf"))])
        pairs = torch.bincount(groups, minlength=best.shape[2])
        ends = pairs.cumsum(0)
        nexts = ends - pairs
        active = torch.arange(best.shape[2], device=best.device)
        here = best.clone()
        while True:
            going = (nexts < ends) & (near.index_select(0, nexts) < here[2].amax(0))
            still = going.nonzero().view(-1)
            if still.numel() < active.numel():
                best.index_copy_(2, active, here)
                active, nexts, ends = (t.index_select(0, still) for t in (active, nexts, ends))
                mine, here = mine.index_select(2, still), here.index_select(2, still)
            if not active.numel():
                return
            others = self.rows.index_select(0, leaves.index_select(0, nexts)).t().contiguous()
            for other in others.view(3, self.size, 1, -1).unbind(1):
                _insert(here, _sum_of_squares(mine - other))
            nexts = nexts + 1


def _halve(columns: List[Tensor], here: slice) -> None:
    """Sort rows of x, y, z and ids in place: the half that is lower along the row's widest side first."""
    columns = [column[here] for column in columns]
    widest = torch.stack([side.amax(1) - side.amin(1) for side in columns[:3]]).argmax(0)
    values = columns[0].clone()
    for axis in (1, 2):
        chosen = (widest == axis).nonzero().view(-1)
        values[chosen] = columns[axis].index_select(0, chosen)
    rows, length = values.shape
    if length <= 64 or values.device.type != "cpu":
        order = values.argsort(1)
    else:
        # Selecting is enough for long rows on a CPU.
        half = length // 2
        order = torch.empty(rows, length, dtype=torch.int64)
        order[:, :half] = values.topk(half, dim=1, largest=False, sorted=False)[1]
        upper = torch.ones_like(values, dtype=torch.bool).scatter_(1, order[:, :half], False)
        # Row by row, so that the flat positions of the upper half count from the start of their row.
        above = upper.view(-1).nonzero().view(rows, -1)
        order[:, half:] = above.sub_(torch.arange(0, rows * length, length).unsqueeze(1))
    del values
    for column in columns:
        column.copy_(column.gather(1, order))


def _sum_of_squares(gaps: Tensor) -> Tensor:
    """Sum of squares over the first dimension (3), in place."""
    gaps.mul_(gaps)
    return gaps[0].add_(gaps[1]).add_(gaps[2])


def _insert(best: Tensor, candidate: Tensor) -> None:
    """Sort a candidate into the ascending triple best[0..2], elementwise and in place."""
    torch.minimum(best[2], torch.maximum(best[1], candidate), out=best[2])
    torch.minimum(best[1], torch.maximum(best[0], candidate), out=best[1])
    torch.minimum(best[0], candidate, out=best[0])


_warned = False


def in_halves(work: Callable[[slice], None], here: slice) -> None:
    """Do the work on a slice; on its halves where memory runs out, with one warning per process. Other errors are raised."""
    global _warned
    try:
        work(here)
        return
    except (RuntimeError, MemoryError) as error:
        # torch's own class for it came with 1.13, and allocators of other devices raise a RuntimeError with one of these
        message = str(error).lower()
        phrases = ("out of memory", "not enough memory", "can't allocate memory")
        short_of_memory = isinstance(error, MemoryError) or any(phrase in message for phrase in phrases)
        if not short_of_memory or here.stop - here.start < 2:
            raise
        if not _warned:
            _warned = True
            message = f"splatfix kNN ran out of memory and goes on with batches of {(here.stop - here.start) // 2}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    middle = (here.start + here.stop) // 2
    in_halves(work, slice(here.start, middle))
    in_halves(work, slice(middle, here.stop))
