"""Exact nearest neighbors with the contract of `simple_knn._C.distCUDA2`, on any device that torch runs on.

Contract of `distCUDA2(points)`: for each of [P, 3] points the mean of the *squared* distances to its 3 nearest other points.
"Other" means another index, so a duplicate counts with distance 0. The search is exact: it sees all points, whatever
the batches. With fewer than 4 points the extension adds FLT_MAX for each neighbor that is missing: P = 3 gives about
1.13e38, P = 2 and P = 1 give inf; so does this file.

Engines. On a CPU a compiled k-d tree is used where installed (napf, pynanoflann, pykdtree, scipy), queried in spatial
order, which is twice as fast. On a GPU `distCUDA2` runs in single precision on the kernels of knn_cuda.py where they can be had.
Otherwise plain torch:

1. the points are sorted into the leaves of a balanced k-d tree by halving along the widest side, all nodes of a level at once;
2. all pairs inside blocks of some 32 neighboring points give each point a first bound;
3. pairs (leaf, leaf) closer than the bound of the first leaf are found by walking down both trees at once, sorted by distance,
   and evaluated nearest first, all leaves in parallel, until no candidate is closer than a leaf's bound;
4. leaves for which that would mean too many pairs (stragglers beside a dense cluster) are searched point by point, depth first.

Distances are always sums of squared differences; the expansion |a|^2 + |b|^2 - 2ab loses the significant digits.

Memory. The sorted points, their boxes and the distances found so far take about 33 bytes per point in single precision; the
search uses what `budget_bytes` leaves beside them, or an eighth of it where that is more (above some 13 million points). A
compiled tree takes what its library takes, and is queried in batches that fit the budget. When memory runs out
nevertheless, the batch is halved, with one warning.

This file needs torch >= 1.13 and nothing else.
"""

from __future__ import annotations

import importlib
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

__all__ = ["available_engines", "distCUDA2", "knn", "last_engine"]

DEFAULT_BUDGET_BYTES = 512 * 1024 * 1024
"""What a search may hold beside its input and its result: 512 MiB."""

_MOST_POINTS_PER_LEAF = 11
_LEAVES_PER_BLOCK = 4
# A leaf with more candidate leaves than this is searched point by point.
_MOST_PAIRS_PER_LEAF = 64
# Pairs in flight on a CPU: their arrays should stay in its cache. A GPU takes what the budget allows.
_CPU_PAIRS = 1 << 17
# Four children of a pair, each with two node numbers, six gathered sides, distance, bound and mask.
_BYTES_PER_PAIR = 4 * 64
# One query of the depth-first search: stack, leaf, candidates, and the copies that sorting them takes.
_BYTES_PER_QUERY = 2048
# Numbers whose order is found at once while the tree is built.
_SORTED_AT_ONCE = 1 << 20
# Coordinate of padding: its squared distance is the largest float to any point, and 0 to itself, never NaN.
_FAR_AWAY = 1e30
# Rounding of a box distance against that of a point distance: keep what is this close to the bound.
_SLACK = 1 + 1e-5

_last_engine = "none"


def distCUDA2(
    points: Tensor, *, budget_bytes: int = DEFAULT_BUDGET_BYTES, engine: Optional[str] = None
) -> Tensor:
    """Mean of squared distances from each of [P, 3] points to its 3 nearest other points: [P], dtype and device as given.

    Args:
        points: [P, 3], float32 or float64, finite.
        budget_bytes: memory for the search beside input and result; see the docstring of this file.
        engine: one of `available_engines()`; by default the fastest available; see `last_engine()`.

    Raises:
        ValueError, TypeError: wrong shape, dtype, values or engine; the message says what to change.
    """
    points = _checked(points, "points")
    count = points.shape[0]
    if count < 4:
        return _few_points(points)
    chosen = _choose(engine, points)
    found = _by_cuda_kernels(points) if engine is None else None
    if found is not None:
        chosen, result = "nvrtc", found
    elif chosen == "torch":
        result = _Search(points, budget_bytes).mean_of_three()
    else:
        result = torch.empty(count, dtype=points.dtype)
        ask = _library_search(chosen, points)
        for rows, squared, _ in _in_spatial_order(ask, points, 4, budget_bytes):
            # Of the four nearest, one zero is the point itself, whichever duplicate the library named first.
            result[rows] = squared[:, 1:].mean(1)
    _remember(chosen)
    return result


def knn(
    points: Tensor,
    queries: Tensor,
    k: int,
    *,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    engine: Optional[str] = None,
) -> Tuple[Tensor, Tensor]:
    """The k points nearest to each query: squared distances [Q, k], ascending, and indices [Q, k] (int64) into `points`.

    A query that is itself one of the points finds itself, at distance 0. Among equal distances any index may come first.

    Args:
        points: [P, 3], float32 or float64, finite; queries: [Q, 3], the same dtype and device.
        k: from 1 to P.
        budget_bytes, engine: as for `distCUDA2`.
    """
    points, queries = _checked(points, "points"), _checked(queries, "queries")
    if points.dtype != queries.dtype or points.device != queries.device:
        raise TypeError(
            f"points and queries must share dtype and device: {points.dtype} on {points.device} "
            f"against {queries.dtype} on {queries.device}."
        )
    if not 1 <= k <= points.shape[0]:
        raise ValueError(f"k must be between 1 and the number of points ({points.shape[0]}), not {k}.")
    chosen = _choose(engine, points)
    squared = queries.new_empty(queries.shape[0], k)
    index = torch.empty(queries.shape[0], k, dtype=torch.int64, device=queries.device)
    if queries.shape[0]:
        ask = _Search(points, budget_bytes).nearest if chosen == "torch" else _library_search(chosen, points)
        for rows, *found in _in_spatial_order(ask, queries, k, budget_bytes):
            squared[rows], index[rows] = found
    _remember(chosen)
    return squared, index


def _by_cuda_kernels(points: Tensor) -> Optional[Tensor]:
    """`distCUDA2` by CUDA kernels, where they lie beside this file and serve these points; else None."""
    if not points.is_cuda:
        return None
    try:
        from splatfix.kernels.knn_cuda import mean_of_three
        from splatfix.kernels.nvrtc import NoKernels, fall_back, ran, wanted
    except ImportError:  # a copy of this file alone
        return None
    if not wanted(points):
        return None
    try:
        found = mean_of_three(points)
    except NoKernels as error:
        fall_back("knn", str(error))
        return None
    ran["knn"] = "nvrtc"
    return found


def available_engines(device: str = "cpu") -> Tuple[str, ...]:
    """The available engines, fastest first; "torch" is always available, and all that can be asked for by name on a GPU."""
    libraries = [name for name in _LIBRARIES if _library(name) is not None] if device == "cpu" else []
    return (*libraries, "torch")


def last_engine() -> str:
    """The engine of the last call in this process, or "none"."""
    return _last_engine


# ---------------------------------------------------------------------------------------------------------------------
# The search in plain torch
# ---------------------------------------------------------------------------------------------------------------------


class _Tree(NamedTuple):
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
        """Bytes of all of it."""
        tensors = [self.rows, self.ids, *(side for level in self.boxes for side in level)]
        return sum(t.numel() * t.element_size() for t in tensors)


class _Frontier(NamedTuple):
    """Pairs of nodes of one level whose first nodes are `first` ... `first + count - 1`, all pairs of each."""

    level: int
    first: int
    width: int
    queries: Tensor
    candidates: Tensor


class _Search:
    """One tree over the points, and the searches in it."""

    def __init__(self, points: Tensor, budget_bytes: int) -> None:
        self.count = points.shape[0]
        self.tree = _build(points)
        self._flat: Optional[List[Tensor]] = (
            None  # the boxes of all levels in one tensor per side, for `_Walk`
        )
        self.device = points.device
        self.dtype = points.dtype
        on_cpu = points.device.type == "cpu"
        # On a CPU whole parts of the tree go to one thread each: single tensor operations are too small to be worth sharing.
        self.threads = torch.get_num_threads() if on_cpu else 1
        # A search holds the tree, and three distances per point or once more the boxes; the rest may go to batches.
        held = self.tree.held() + self.tree.rows.numel() * self.tree.rows.element_size()
        self.budget = max(budget_bytes - held, budget_bytes // 8) // self.threads
        most = self.budget // _BYTES_PER_PAIR
        self.most_pairs = max(256, min(most, _CPU_PAIRS) if on_cpu else most)
        self.most_queries = max(1, min(self.budget // _BYTES_PER_QUERY, 1 << (16 if on_cpu else 20)))

    def _in_parallel(self, work: Callable[[Any], None], parts: Sequence[Any]) -> None:
        """Run `work` on every part, in threads that do not split single operations any further."""
        if self.threads == 1 or len(parts) == 1:
            for part in parts:
                work(part)
            return
        try:
            with ThreadPoolExecutor(self.threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                for _ in pool.map(work, parts):
                    pass  # an exception of a thread is raised here
        finally:
            torch.set_num_threads(self.threads)

    # -- distCUDA2 --

    def mean_of_three(self) -> Tensor:
        """Mean of the three smallest squared distances to others, in input order."""
        tree = self.tree
        best = self._within_blocks()
        radii = _pyramid(best[2].amax(0), tree.depth)
        hard = self._all_leaves(best, radii)
        result = best.new_empty(self.count + 1)
        ids = tree.ids.view(-1, tree.size)
        step = max(1, _SORTED_AT_ONCE // tree.size)
        for start in range(0, ids.shape[0], step):
            here = slice(start, start + step)
            result[ids[here].t().long()] = best[:, :, here].sum(0).div_(3)
        del best
        # Queries, their answers and the copies of both: some 128 bytes for each point of a leaf.
        step = max(1, self.budget // (128 * tree.size))
        for start in range(0, hard.numel(), step):
            some = hard[start : start + step]
            members = ids.index_select(0, some).view(-1).long()
            result[members[members < self.count]] = self._of_members(some)
        return result[: self.count]

    def _of_members(self, leaves: Tensor) -> Tensor:
        """The same for the points of some leaves, one by one: of the 4 nearest, one zero is the point itself."""
        tree = self.tree
        real = tree.ids.view(-1, tree.size).index_select(0, leaves) < self.count
        queries = tree.rows.index_select(0, leaves).view(-1, 3, tree.size).transpose(1, 2)[real]
        squared, _ = self.nearest(queries, 4)
        return squared[:, 1:].mean(1)

    def _within_blocks(self) -> Tensor:
        """[3, size, leaves]: each point's three smallest squared distances inside its block of four leaves."""
        tree = self.tree
        per_block = min(_LEAVES_PER_BLOCK, 1 << tree.depth)
        blocks, members = (1 << tree.depth) // per_block, per_block * tree.size
        best = tree.rows.new_empty(3, tree.size, blocks, per_block)
        step = max(1, self.most_pairs // (2 * members))
        for start in range(0, blocks, step):
            rows = tree.rows[start * per_block : (start + step) * per_block].view(-1, per_block, 3, tree.size)
            xyz = rows.permute(2, 1, 3, 0).reshape(3, members, -1).contiguous()
            here = xyz.new_full((3, *xyz.shape[1:]), float("inf"))
            for other in range(members):
                squared = _squared_distance(xyz, xyz[:, other : other + 1])
                squared[other] = float("inf")
                _insert(here, squared)
            best[:, :, start : start + step] = here.view(3, per_block, tree.size, -1).permute(0, 2, 3, 1)
        best = best.view(3, tree.size, -1)
        # Padding needs no neighbors: below every distance, it never widens the bound of its leaf.
        best.masked_fill_((tree.ids == self.count).view(-1, tree.size).t(), -1.0)
        return best

    def _all_leaves(self, best: Tensor, radii: List[Tensor]) -> Tensor:
        """Walk down from (root, root), improving `best`; returns the leaves [n] that are left to `_of_members`."""
        root = torch.zeros(1, dtype=torch.int32, device=self.device)
        hard: list[Tensor] = [torch.zeros(0, dtype=torch.int64, device=self.device)]
        work = [_Frontier(0, 0, 1, root, root)]
        while self.threads > 1 and len(work) < 4 * self.threads and work[0].level < min(8, self.tree.depth):
            nodes = []
            for frontier in work:
                deeper, given_up = self._descend(frontier, radii)
                hard.append(given_up)
                nodes += _split(deeper)
            work = nodes
        self._in_parallel(lambda frontier: self._below(frontier, best, radii, hard), work)
        return torch.cat(hard)

    def _below(self, frontier: _Frontier, best: Tensor, radii: list[Tensor], hard: list[Tensor]) -> None:
        """Evaluate everything below one frontier, in pieces of at most `most_pairs` pairs."""
        work = [frontier]
        while work:
            frontier = work.pop()
            if 4 * frontier.queries.numel() > self.most_pairs and frontier.width > 1:
                work.extend(_split(frontier))
                continue
            try:
                if frontier.level < self.tree.depth:
                    deeper, given_up = self._descend(frontier, radii)
                    work.append(deeper)
                    hard.append(given_up)
                else:
                    self._evaluate(frontier, best)
            except (RuntimeError, MemoryError) as error:
                self.most_pairs = _halved(self.most_pairs, 256, error)
                work.append(frontier)

    def _descend(self, frontier: _Frontier, radii: List[Tensor]) -> Tuple[_Frontier, Tensor]:
        """Replace each pair by those of its four child pairs that are close enough. Returns also the leaves given up:
        those below a node with more pairs than its leaves may have together."""
        level = frontier.level + 1
        q, r = frontier.queries * 2, frontier.candidates * 2
        q, r = torch.cat([q, q, q + 1, q + 1]), torch.cat([r, r + 1, r, r + 1])
        squared = _box_distance(self.tree.boxes[level], q, r)
        keep = squared <= radii[level].index_select(0, q)
        first, count = 2 * frontier.first, 2 * frontier.width
        kept = keep.nonzero().view(-1)
        q, r = q.index_select(0, kept), r.index_select(0, kept)
        leaves_below = 1 << (self.tree.depth - level)
        pairs = torch.bincount(q - first, minlength=count)
        too_many = pairs > _MOST_PAIRS_PER_LEAF * leaves_below
        given_up = torch.zeros(0, dtype=torch.int64, device=self.device)
        if bool(too_many.any()):
            fine = (~too_many).index_select(0, q - first).nonzero().view(-1)
            q, r = q.index_select(0, fine), r.index_select(0, fine)
            nodes = too_many.nonzero().view(-1, 1) + first
            given_up = (nodes * leaves_below + torch.arange(leaves_below, device=self.device)).view(-1)
        return _Frontier(level, first, count, q, r), given_up

    def _evaluate(self, frontier: _Frontier, best: Tensor) -> None:
        """Compare the points of each leaf with those of its candidate leaves, nearest candidates first."""
        size = self.tree.size
        q, r = frontier.queries, frontier.candidates
        elsewhere = ((q // _LEAVES_PER_BLOCK) != (r // _LEAVES_PER_BLOCK)).nonzero().view(-1)
        q, r = q.index_select(0, elsewhere), r.index_select(0, elsewhere)
        if not q.numel():
            return
        squared = _box_distance(self.tree.boxes[-1], q, r)
        order = _order_by(q - frontier.first, squared)
        q, r, squared = q.index_select(0, order), r.index_select(0, order), squared.index_select(0, order)
        pairs = torch.bincount(q - frontier.first, minlength=frontier.width)
        nexts = pairs.cumsum(0) - pairs
        leaves = pairs.nonzero().view(-1)
        nexts = nexts.index_select(0, leaves)
        ends = nexts + pairs.index_select(0, leaves)
        leaves = leaves + frontier.first
        mine = self._points_of(leaves)
        here = best.index_select(2, leaves)
        while leaves.numel():
            going = nexts < ends
            going &= squared.index_select(0, nexts.clamp(max=squared.numel() - 1)) <= here[2].amax(0) * _SLACK
            still = going.nonzero().view(-1)
            if still.numel() < leaves.numel():
                best.index_copy_(2, leaves, here)
                leaves, nexts, ends = (t.index_select(0, still) for t in (leaves, nexts, ends))
                mine, here = mine.index_select(2, still), here.index_select(2, still)
            others = self._points_of(r.index_select(0, nexts))
            for other in range(size):
                _insert(here, _squared_distance(mine, others[:, other : other + 1]))
            nexts = nexts + 1

    def _points_of(self, leaves: Tensor) -> Tensor:
        """[3, size, n]: the points of some leaves, one leaf per column."""
        return self.tree.rows.index_select(0, leaves).t().contiguous().view(3, self.tree.size, -1)

    # -- any queries --

    def nearest(self, queries: Tensor, k: int) -> Tuple[Tensor, Tensor]:
        """Squared distances and indices [Q, k], depth first from the root, the nearer child first."""
        count = queries.shape[0]
        squared = queries.new_empty(count, k)
        index = torch.empty(count, k, dtype=torch.int64, device=self.device)
        if self._flat is None:
            self._flat = [torch.cat([level[side] for level in self.tree.boxes]) for side in range(6)]

        def answer(rows: range) -> None:
            start, batch = rows.start, len(rows)
            while start < rows.stop:
                here = slice(start, min(start + batch, rows.stop))
                try:
                    squared[here], index[here] = self._depth_first(queries[here], k)
                except (RuntimeError, MemoryError) as error:
                    batch = _halved(batch, 1, error)
                    continue
                start += batch

        most = min(self.most_queries, self.budget // (_BYTES_PER_QUERY + 64 * k), -(-count // self.threads))
        batch = max(1, most)
        self._in_parallel(answer, [range(at, min(at + batch, count)) for at in range(0, count, batch)])
        return squared, index

    def _depth_first(self, queries: Tensor, k: int) -> Tuple[Tensor, Tensor]:
        assert self._flat is not None
        return _Walk(queries, k, self.tree, self._flat, self.count).run()


class _Walk:
    """Many parallel queries of one tree, each with its own stack of nodes to visit.

    Nodes are numbered over all levels: node i of level l is 2^l - 1 + i, its children are 2n + 1 and 2n + 2.
    Every step pops one node of every query; a query is done when its stack is empty.
    """

    def __init__(self, queries: Tensor, k: int, tree: _Tree, boxes: List[Tensor], nobody: int) -> None:
        count = queries.shape[0]
        self.tree, self.boxes, self.k = tree, boxes, k
        self.first_leaf = (1 << tree.depth) - 1
        self.xyz = queries.t().contiguous()
        self.alive = torch.arange(count, device=queries.device)
        self.squared = queries.new_full((count, k), float("inf"))
        self.index = self.alive.new_full((count, k), nobody)
        self.found = self.squared.clone(), self.index.clone()
        self.nodes = self.alive.new_zeros(tree.depth + 2, count)
        self.bounds = queries.new_zeros(tree.depth + 2, count)
        self.height = torch.ones_like(self.alive)  # the root is on every stack

    def run(self) -> Tuple[Tensor, Tensor]:
        """Squared distances and indices [Q, k]."""
        while self.alive.numel():
            node, worth = self._pop()
            is_leaf = node >= self.first_leaf
            inner = (worth & ~is_leaf).nonzero().view(-1)
            leaf = (worth & is_leaf).nonzero().view(-1)
            if inner.numel():
                self._push_children(inner, node.index_select(0, inner))
            if leaf.numel():
                self._look_at_leaf(leaf, node.index_select(0, leaf) - self.first_leaf)
            self._drop_finished()
        return self.found

    def _pop(self) -> Tuple[Tensor, Tensor]:
        """The node on top of each stack, and whether it can still hold a nearer point."""
        waiting = self.height > 0
        self.height = (self.height - 1).clamp_(min=0)
        top = self.height.unsqueeze(0)
        node = self.nodes.gather(0, top).view(-1)
        bound = self.bounds.gather(0, top).view(-1)
        return node, waiting & (bound <= self.squared[:, -1] * _SLACK)

    def _push_children(self, who: Tensor, node: Tensor) -> None:
        xyz = self.xyz.index_select(1, who)
        left = _point_to_box(xyz, self.boxes, 2 * node + 1)
        right = _point_to_box(xyz, self.boxes, 2 * node + 2)
        right_is_nearer = (right < left).to(node.dtype)
        height = self.height.index_select(0, who)
        columns = self.nodes.shape[1]
        slot = height * columns + who
        nodes, bounds = self.nodes.view(-1), self.bounds.view(-1)
        nodes[slot] = 2 * node + 2 - right_is_nearer
        bounds[slot] = torch.maximum(left, right)
        nodes[slot + columns] = 2 * node + 1 + right_is_nearer
        bounds[slot + columns] = torch.minimum(left, right)
        self.height.index_copy_(0, who, height + 2)

    def _look_at_leaf(self, who: Tensor, leaf: Tensor) -> None:
        size = self.tree.size
        points = self.tree.rows.index_select(0, leaf).view(-1, 3, size)
        gaps = points - self.xyz.index_select(1, who).t().unsqueeze(2)
        squared = gaps.square_().sum(1)
        ids = self.tree.ids.view(-1, size).index_select(0, leaf).long()
        squared = torch.cat([self.squared.index_select(0, who), squared], 1)
        ids = torch.cat([self.index.index_select(0, who), ids], 1)
        squared, slots = squared.topk(self.k, dim=1, largest=False)
        self.squared.index_copy_(0, who, squared)
        self.index.index_copy_(0, who, ids.gather(1, slots))

    def _drop_finished(self) -> None:
        """Store the finished queries once they are a quarter of all, so that copying the rest pays off."""
        going = self.height > 0
        left = int(going.sum())
        if 4 * left > 3 * going.numel():
            return
        self.found[0].index_copy_(0, self.alive, self.squared)
        self.found[1].index_copy_(0, self.alive, self.index)
        keep = going.nonzero().view(-1)
        self.alive, self.height = self.alive.index_select(0, keep), self.height.index_select(0, keep)
        self.squared, self.index = self.squared.index_select(0, keep), self.index.index_select(0, keep)
        self.xyz = self.xyz.index_select(1, keep)
        self.nodes, self.bounds = self.nodes.index_select(1, keep), self.bounds.index_select(1, keep)


# ---------------------------------------------------------------------------------------------------------------------
# Building the tree
# ---------------------------------------------------------------------------------------------------------------------


def _build(points: Tensor) -> _Tree:
    """Sort the points into the leaves of a balanced tree; each level halves every node along its widest side."""
    count, depth = points.shape[0], 0
    while _MOST_POINTS_PER_LEAF << depth < count:
        depth += 1
    size = -(-count // (1 << depth))
    total = size << depth
    # Half the memory of int64, which is what this phase holds most of.
    whole = torch.int32 if total < 2**31 else torch.int64
    ids = torch.arange(total, dtype=whole, device=points.device)
    # Leaves are all full: copies of points spread evenly over the input fill the gap, and are replaced by padding at the end.
    ids[count:] = torch.arange(total - count, device=points.device) * count // max(1, total - count)
    xyz = [points[:, axis].index_select(0, ids) for axis in range(3)]
    ids[count:] = count
    for level in range(depth):
        nodes, length = 1 << level, total >> level
        split = [side.view(nodes, length) for side in xyz]
        widest = torch.stack([s.amax(1) - s.amin(1) for s in split]).argmax(0)
        values = split[0].clone()
        for axis in (1, 2):
            chosen = (widest == axis).nonzero().view(-1)
            values[chosen] = split[axis].index_select(0, chosen)
        del split
        order = torch.empty(nodes, length, dtype=whole, device=points.device)
        step = max(1, _SORTED_AT_ONCE // length)
        for start in range(0, nodes, step):
            _halves(values[start : start + step], order[start : start + step])
        del values
        order = order.add_(
            torch.arange(0, total, length, dtype=whole, device=points.device).unsqueeze(1)
        ).view(-1)
        for axis in range(3):
            xyz[axis] = xyz[axis].index_select(0, order)
        ids = ids.index_select(0, order)
        del order
    boxes = _boxes(xyz, depth)
    rows = torch.stack([side.view(-1, size) for side in xyz], 1).view(-1, 3 * size)
    padding = (ids == count).view(-1, 1, size)
    rows.view(-1, 3, size).masked_fill_(padding, _FAR_AWAY)
    return _Tree(depth, size, rows, ids, boxes)


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


def _boxes(xyz: Sequence[Tensor], depth: int) -> List[List[Tensor]]:
    low = [side.view(1 << depth, -1).amin(1) for side in xyz]
    high = [side.view(1 << depth, -1).amax(1) for side in xyz]
    levels = [low + high]
    for _ in range(depth):
        low = [side.view(-1, 2).amin(1) for side in low]
        high = [side.view(-1, 2).amax(1) for side in high]
        levels.append(low + high)
    return levels[::-1]


def _pyramid(leaves: Tensor, depth: int) -> List[Tensor]:
    """The largest value below each node, level by level; with a little slack for rounding."""
    levels = [leaves * _SLACK]
    for _ in range(depth):
        levels.append(levels[-1].view(-1, 2).amax(1))
    return levels[::-1]


# ---------------------------------------------------------------------------------------------------------------------
# Arithmetic
# ---------------------------------------------------------------------------------------------------------------------


def _squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """Sum of squared differences over the first dimension (3)."""
    gaps = a - b
    gaps.mul_(gaps)
    return gaps[0].add_(gaps[1]).add_(gaps[2])


def _insert(best: Tensor, candidate: Tensor) -> None:
    """Sort a candidate into the ascending triple best[0..2], elementwise and in place."""
    torch.minimum(best[2], torch.maximum(best[1], candidate), out=best[2])
    torch.minimum(best[1], torch.maximum(best[0], candidate), out=best[1])
    torch.minimum(best[0], candidate, out=best[0])


def _box_distance(boxes: Sequence[Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Squared gap between box a[i] and box b[i]; 0 where they overlap."""
    total = None
    for low, high in zip(boxes[:3], boxes[3:]):
        gap = low.index_select(0, b).sub_(high.index_select(0, a))
        other = low.index_select(0, a).sub_(high.index_select(0, b))
        gap = torch.maximum(gap, other, out=gap).clamp_(min=0)
        total = gap.mul_(gap) if total is None else total.addcmul_(gap, gap)
    assert total is not None
    return total


def _point_to_box(xyz: Tensor, boxes: Sequence[Tensor], node: Tensor) -> Tensor:
    """Squared distance from point xyz[:, i] to box node[i]; 0 inside."""
    total = torch.zeros_like(xyz[0])
    for value, low, high in zip(xyz, boxes[:3], boxes[3:]):
        gap = torch.maximum(low.index_select(0, node) - value, value - high.index_select(0, node)).clamp_(
            min=0
        )
        total.addcmul_(gap, gap)
    return total


def _order_by(group: Tensor, squared: Tensor) -> Tensor:
    """The order that sorts by group and, inside a group, by distance."""
    if squared.dtype == torch.float32:
        # The bits of a non-negative float sort as it does; one sort of integers is by far the fastest.
        return ((group.long() << 32) | squared.view(torch.int32).long()).argsort()
    order = squared.argsort()
    return order.index_select(0, torch.sort(group.index_select(0, order), stable=True)[1])


def _spatial_order(points: Tensor) -> Tensor:
    """The order of the points along a Morton curve: consecutive queries visit the same nodes."""
    low = points.amin(0)
    scale = (points.amax(0) - low).amax().clamp(min=torch.finfo(points.dtype).tiny)
    key = torch.zeros(points.shape[0], dtype=torch.int64, device=points.device)
    step = _SORTED_AT_ONCE >> 2
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


def _split(frontier: _Frontier) -> List[_Frontier]:
    """The same pairs in two halves, by their first nodes."""
    half = frontier.width // 2
    middle = frontier.first + half
    parts = []
    for first, count, mask in (
        (frontier.first, half, frontier.queries < middle),
        (middle, frontier.width - half, frontier.queries >= middle),
    ):
        which = mask.nonzero().view(-1)
        q, r = frontier.queries.index_select(0, which), frontier.candidates.index_select(0, which)
        parts.append(_Frontier(frontier.level, first, count, q, r))
    return parts


# ---------------------------------------------------------------------------------------------------------------------
# Compiled engines
# ---------------------------------------------------------------------------------------------------------------------


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


_LIBRARIES: Dict[str, Tuple[str, Callable[[Any, Any], _Ask]]] = {
    "napf": ("napf", _build_napf),
    "pynanoflann": ("pynanoflann", _build_pynanoflann),
    "pykdtree": ("pykdtree.kdtree", _build_pykdtree),
    "scipy": ("scipy.spatial", _build_scipy),
}
"""Engine -> (module, how to build its tree), fastest first on a million points."""


def _library(engine: str) -> Optional[Any]:
    """The module of an engine, or None where it is not installed or does not load (built for another numpy)."""
    try:
        importlib.import_module("numpy")
        return importlib.import_module(_LIBRARIES[engine][0])
    except (ImportError, AttributeError, OSError, RuntimeError, ValueError):
        return None


_Answer = Callable[[Tensor, int], Tuple[Tensor, Tensor]]


def _library_search(engine: str, points: Tensor) -> _Answer:
    """A compiled tree over the points; queries return squared distances and indices [Q, k]."""
    ask = _LIBRARIES[engine][1](_library(engine), points.numpy())

    def answer(queries: Tensor, k: int) -> Tuple[Tensor, Tensor]:
        index = torch.as_tensor(ask(queries.contiguous().numpy(), k).astype("int64")).view(-1, k)
        # Recomputed as differences: some libraries round theirs.
        squared = [_squared_distance(points[column].t(), queries.t()) for column in index.unbind(1)]
        return torch.stack(squared, 1), index

    return answer


def _in_spatial_order(
    answer: _Answer, queries: Tensor, k: int, budget_bytes: int
) -> Iterator[Tuple[Tensor, Tensor, Tensor]]:
    """Query along a Morton curve, in batches: rows in `queries`, squared distances and indices."""
    order = _spatial_order(queries)
    # A query: itself and its copies, its answer as the library gives it and as we do, distances and gathered points.
    # A quarter of the budget is enough for that; order and tree need the rest.
    batch = max(1, budget_bytes // 4 // (128 + 48 * k))
    start = 0
    while start < order.shape[0]:
        rows = order[start : start + batch]
        try:
            squared, index = answer(queries.index_select(0, rows), k)
        except (RuntimeError, MemoryError) as error:
            batch = _halved(batch, 1, error)
            continue
        start += batch
        yield rows, squared, index


def _choose(engine: Optional[str], points: Tensor) -> str:
    if points.device.type != "cpu":
        if engine not in (None, "torch"):
            raise ValueError(
                f'Engine "{engine}" works on CPU tensors only; use engine="torch" on {points.device}.'
            )
        return "torch"
    if engine is None:
        return next((name for name in _LIBRARIES if _library(name) is not None), "torch")
    if engine != "torch" and (engine not in _LIBRARIES or _library(engine) is None):
        known = ", ".join([*_LIBRARIES, "torch"])
        raise ValueError(
            f'Engine "{engine}" is not installed here or unknown (known: {known}). Use engine="torch".'
        )
    return engine


# ---------------------------------------------------------------------------------------------------------------------
# Helpers
# ---------------------------------------------------------------------------------------------------------------------


def _remember(engine: str) -> None:
    global _last_engine
    _last_engine = engine


def _few_points(points: Tensor) -> Tensor:
    """Fewer than 4 points: every missing neighbor counts as FLT_MAX, in single precision, as in the extension."""
    count = points.shape[0]
    _remember("torch")
    squared = (points.unsqueeze(0) - points.unsqueeze(1)).square_().sum(2).float()
    squared.fill_diagonal_(torch.finfo(torch.float32).max)
    missing = squared.new_full((count, 4), torch.finfo(torch.float32).max)
    nearest = torch.cat([squared, missing], 1).sort(1)[0]
    return ((nearest[:, 0] + nearest[:, 1] + nearest[:, 2]) / 3).to(points.dtype)


def _halved(size: int, least: int, error: BaseException) -> int:
    """Half the batch after an out-of-memory error, with one warning per process; any other error is raised again."""
    words = str(error).lower()
    short_of_memory = isinstance(error, MemoryError) or any(
        said in words for said in ("out of memory", "not enough memory", "can't allocate memory")
    )
    if not short_of_memory or size // 2 < least:
        raise error
    _warn_once(f"splatfix kNN ran out of memory and goes on with batches of {size // 2}: {error}")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return size // 2


_warned = False


def _warn_once(message: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def _checked(points: Tensor, name: str) -> Tensor:
    """The points, detached. Raises ValueError or TypeError for invalid ones."""
    if points.dim() != 2 or points.shape[1] != 3:
        raise ValueError(f"{name} must have shape [N, 3], not {tuple(points.shape)}.")
    if points.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{name} must be float32 or float64, not {points.dtype}; call .float() first.")
    points = points.detach()
    if not bool(torch.isfinite(points).all()):
        bad = int((~torch.isfinite(points).all(1)).sum())
        raise ValueError(f"{bad} of the {points.shape[0]} {name} hold NaN or infinity; remove them first.")
    return points
