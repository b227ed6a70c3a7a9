"""Nearest neighbors in a tree of `knn_tree.py`, all leaves at once, in plain torch. The method is told in `knn.py`."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from splatfix.kernels.knn_tree import (
    SLACK,
    SORTED_AT_ONCE,
    Tree,
    box_distance,
    boxes_of_levels,
    build_tree,
    in_parallel,
    point_to_box,
    squared_distance,
)

_LEAVES_PER_BLOCK = 4
# A leaf with more candidate leaves than this is searched point by point.
_MOST_PAIRS_PER_LEAF = 64
# Pairs in flight on a CPU: their arrays should stay in its cache. A GPU takes what the budget allows.
_CPU_PAIRS = 1 << 17
# Four children of a pair, each with two node numbers, six gathered sides, distance, bound and mask.
_BYTES_PER_PAIR = 4 * 64
# One query of the depth-first search: stack, leaf, candidates, and the copies that sorting them takes.
_BYTES_PER_QUERY = 2048


class _Frontier(NamedTuple):
    """Pairs of nodes of one level whose first nodes are `first` ... `first + count - 1`, all pairs of each."""

    level: int
    first: int
    width: int
    queries: Tensor
    candidates: Tensor


@contextmanager
def one_thread_an_operation() -> Iterator[None]:
    """Torch's own threads wait for each other by spinning, beside those of `in_parallel` or any other that is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Search:
    """One tree over the points, and the searches in it."""

    def __init__(self, points: Tensor, budget_bytes: int) -> None:
        self.count = points.shape[0]
        on_cpu = points.device.type == "cpu"
        # On a CPU whole parts of the tree go to one thread each: single tensor operations are too small to be worth sharing.
        self.threads = torch.get_num_threads() if on_cpu else 1
        with one_thread_an_operation():
            self.tree = build_tree(points, self.threads)
        self._flat: Optional[List[Tensor]] = (
            None  # the boxes of all levels in one tensor per side, for `_Walk`
        )
        self.device = points.device
        self.dtype = points.dtype
        # A search holds the tree, and three distances per point or once more the boxes; the rest may go to batches.
        held = self.tree.held() + self.tree.rows.numel() * self.tree.rows.element_size()
        self.budget = max(budget_bytes - held, budget_bytes // 8) // self.threads
        most = self.budget // _BYTES_PER_PAIR
        self.most_pairs = max(256, min(most, _CPU_PAIRS) if on_cpu else most)
        self.most_queries = max(1, min(self.budget // _BYTES_PER_QUERY, 1 << (16 if on_cpu else 20)))

    # -- distCUDA2 --

    @one_thread_an_operation()
    def mean_of_three(self) -> Tensor:
        """Mean of the three smallest squared distances to others, in input order."""
        tree = self.tree
        best = self._within_blocks()
        radii = boxes_of_levels(best[2].amax(0), tree.depth)
        hard = self._all_leaves(best, radii)
        result = best.new_empty(self.count + 1)
        ids = tree.ids.view(-1, tree.size)
        step = max(1, SORTED_AT_ONCE // tree.size)
        for start in range(0, ids.shape[0], step):
            here = slice(start, start + step)
            result[ids[here].t().long()] = best[:, :, here].sum(0).div_(3)
        del best
        # Queries, their answers and the copies of both: some 128 bytes for each point of a leaf.
        step = max(1, self.budget // (128 * tree.size))
        for start in range(0, hard.numel(), step):
            some = hard[start : start + step]
            members = ids.index_select(0, some)
            real = members < self.count
            queries = tree.rows.index_select(0, some).view(-1, 3, tree.size).transpose(1, 2)[real]
            squared, _ = self.nearest(queries, 4)
            # of the 4 nearest, one zero is the point itself
            result[members[real].long()] = squared[:, 1:].mean(1)
        return result[: self.count]

    def _within_blocks(self) -> Tensor:
        """[3, size, leaves]: each point's three smallest squared distances inside its block of four leaves."""
        tree = self.tree
        per_block = min(_LEAVES_PER_BLOCK, 1 << tree.depth)
        blocks, members = (1 << tree.depth) // per_block, per_block * tree.size
        best = tree.rows.new_empty(3, tree.size, blocks, per_block)
        step = max(1, self.most_pairs // (2 * members))

        def compare(start: int) -> None:
            rows = tree.rows[start * per_block : (start + step) * per_block].view(-1, per_block, 3, tree.size)
            xyz = rows.permute(2, 1, 3, 0).reshape(3, members, -1).contiguous()
            here = xyz.new_full((3, *xyz.shape[1:]), float("inf"))
            for other in range(members):
                squared = squared_distance(xyz, xyz[:, other : other + 1])
                squared[other] = float("inf")
                _insert(here, squared)
            best[:, :, start : start + step] = here.view(3, per_block, tree.size, -1).permute(0, 2, 3, 1)

        in_parallel(compare, range(0, blocks, step), self.threads)
        best = best.view(3, tree.size, -1)
        # Padding needs no neighbors: below every distance, it never widens the bound of its leaf.
        best.masked_fill_((tree.ids == self.count).view(-1, tree.size).t(), -1.0)
        return best

    def _all_leaves(self, best: Tensor, radii: List[Tensor]) -> Tensor:
        """Walk down from (root, root), improving `best`; returns the leaves [n] whose points are left to `nearest`."""
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
        in_parallel(lambda frontier: self._below(frontier, best, radii, hard), work, self.threads)
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
                self.most_pairs = half_batch(self.most_pairs, 256, error)
                work.append(frontier)

    def _descend(self, frontier: _Frontier, radii: List[Tensor]) -> Tuple[_Frontier, Tensor]:
        """Replace each pair by those of its four child pairs that are close enough. Returns also the leaves given up:
        those below a node with more pairs than its leaves may have together."""
        level = frontier.level + 1
        q, r = frontier.queries * 2, frontier.candidates * 2
        q, r = torch.cat([q, q, q + 1, q + 1]), torch.cat([r, r + 1, r, r + 1])
        squared = box_distance(self.tree.boxes[level], q, r)
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
        squared = box_distance(self.tree.boxes[-1], q, r)
        # by leaf and, inside a leaf, by distance
        group = q - frontier.first
        if squared.dtype == torch.float32:
            # The bits of a non-negative float sort as it does; one sort of integers is by far the fastest.
            order = ((group.long() << 32) | squared.view(torch.int32).long()).argsort()
        else:
            order = squared.argsort()
            order = order.index_select(0, torch.sort(group.index_select(0, order), stable=True)[1])
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
            going &= squared.index_select(0, nexts.clamp(max=squared.numel() - 1)) <= here[2].amax(0) * SLACK
            still = going.nonzero().view(-1)
            if still.numel() < leaves.numel():
                best.index_copy_(2, leaves, here)
                leaves, nexts, ends = (t.index_select(0, still) for t in (leaves, nexts, ends))
                mine, here = mine.index_select(2, still), here.index_select(2, still)
            others = self._points_of(r.index_select(0, nexts))
            for other in range(size):
                _insert(here, squared_distance(mine, others[:, other : other + 1]))
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
        flat = self._flat

        def answer(rows: range) -> None:
            start, batch = rows.start, len(rows)
            while start < rows.stop:
                here = slice(start, min(start + batch, rows.stop))
                try:
                    squared[here], index[here] = _Walk(queries[here], k, self.tree, flat, self.count).run()
                except (RuntimeError, MemoryError) as error:
                    batch = half_batch(batch, 1, error)
                    continue
                start += batch

        most = min(self.most_queries, self.budget // (_BYTES_PER_QUERY + 64 * k), -(-count // self.threads))
        batch = max(1, most)
        in_parallel(
            answer, [range(at, min(at + batch, count)) for at in range(0, count, batch)], self.threads
        )
        return squared, index


class _Walk:
    """Many parallel queries of one tree, each with its own stack of nodes to visit.

    Nodes are numbered over all levels: node i of level l is 2^l - 1 + i, its children are 2n + 1 and 2n + 2.
    Every step pops one node of every query; a query is done when its stack is empty.
    """

    def __init__(self, queries: Tensor, k: int, tree: Tree, boxes: List[Tensor], nobody: int) -> None:
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
        return node, waiting & (bound <= self.squared[:, -1] * SLACK)

    def _push_children(self, who: Tensor, node: Tensor) -> None:
        xyz = self.xyz.index_select(1, who)
        left = point_to_box(xyz, self.boxes, 2 * node + 1)
        right = point_to_box(xyz, self.boxes, 2 * node + 2)
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


def _insert(best: Tensor, candidate: Tensor) -> None:
    """Sort a candidate into the ascending triple best[0..2], elementwise and in place."""
    torch.minimum(best[2], torch.maximum(best[1], candidate), out=best[2])
    torch.minimum(best[1], torch.maximum(best[0], candidate), out=best[1])
    torch.minimum(best[0], candidate, out=best[0])


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


_warned = False


def half_batch(size: int, least: int, error: BaseException) -> int:
    """Half the batch after an out-of-memory error, with one warning per process; any other error is raised again."""
    global _warned
    # torch's own class for it came with 1.13, and allocators of other devices raise a RuntimeError with one of these
    message = str(error).lower()
    phrases = ("out of memory", "not enough memory", "can't allocate memory")
    short_of_memory = isinstance(error, MemoryError) or any(phrase in message for phrase in phrases)
    if not short_of_memory or size // 2 < least:
        raise error
    if not _warned:
        _warned = True
        message = f"splatfix kNN ran out of memory and goes on with batches of {size // 2}: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return size // 2
