"""How many Gaussians and minutes to expect, as ranges with the published runs that they rest on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from splatfix.budget.model import Expected, Need, Span
from splatfix.knowledge.vram import GIB, Run, families, published_runs, stack_memory

MCMC_GROWTH = 1.05
"""Of the count at each densification (Kheradmand et al. 2024, section 4)."""
SHORT_DENSIFICATIONS = 6
"""Of a short run of the smoke trainer, at most: it takes a twelfth of the run each, from 20 to 70 % of it."""
NEAR = 2.0
"""A published run tells the time of a training of up to twice or half its Gaussians."""


def gaussians_expected(need: Need, cap: int | None = None, iterations: int = 30_000) -> Expected | None:
    """The final count where nobody said it; None where no run tells.

    A published run on as many photos of this size says it. Else the count is in the range of those runs, which follows the pixels
    of all photos beyond the fewest and the most of them; no point of the start is lost, and those of a dense start come on top.

    Args:
        cap: the budget that was named.
    """
    stack = stack_memory(need.stack)
    if stack is None or not stack.family:
        return None
    family = families()[stack.family]
    if cap is None and (family.flat or (need.strategy == "mcmc" and stack.own)):
        cap = family.cap
    if cap is not None:
        return Expected(cap, cap, (), "the cap of its strategy", family.source)
    if family.growth:
        if not need.points:
            return None
        low, high = family.growth
        if need.strategy == "mcmc":
            low = high = mcmc_count(need.points, SHORT_DENSIFICATIONS) / need.points
        return Expected(
            low * need.points, high * need.points, (), "by 300 iterations on six sample scenes", family.source
        )
    runs = _runs(family.runs or family.counts, iterations)
    if not runs or need.strategy == "mcmc":
        return None
    for run in runs:
        if run.like(need.photos, need.width, need.height):
            note = f"published: {run.photos} photos of {run.width}x{run.height}, {run.bytes / GIB:.2f} GB allocated"
            return Expected(run.gaussians, run.gaussians, (run.name,), note, run.source)
    counts = [run.gaussians for run in runs]
    seen = [run.photos * run.pixels for run in runs]
    pixels = need.photos * need.pixels
    grown = pixels / min(max(pixels, min(seen)), max(seen))
    low, high = min(counts) * min(1.0, grown), max(counts) * grown
    note = f"by {len(runs)} published runs, the pixels of all photos and the points"
    return Expected(max(low, need.points), high + need.points, _names(runs), note, runs[0].source)


BASIS = "the stack's parts and published runs of its family on seven scenes of Mip-NeRF 360, as splatfix vram sums them"
"""What :func:`usual_needs` rests on."""


BUDGETED = ("mcmc", "taming")
"""Stacks whose count is what they are given."""


def usual_needs(stack_key: str) -> Sequence[Need]:
    """A stack's training of each public scene with published runs, for 30,000 iterations; () where none are of its family."""
    stack = stack_memory(stack_key)
    if stack is None or not stack.family or stack.key in BUDGETED:
        return ()
    runs = _runs(families()[stack.family].runs, 30_000)
    return [
        Need(stack.key, run.photos, run.width, run.height, Span(run.gaussians, run.gaussians, run.gaussians))
        for run in runs
    ]


def mcmc_count(points: int, densifications: int, cap: int = 1_000_000) -> int:
    """The count after so many densifications of 3DGS-MCMC."""
    count = points
    for _ in range(densifications):
        count = max(count, min(cap, int(MCMC_GROWTH * count)))
    return count


def span_of(expected: Expected) -> Span:
    """Low, geometric mean and high."""
    return Span(expected.low, math.sqrt(expected.low * expected.high), expected.high)


def minutes_expected(need: Need, iterations: int) -> Expected | None:
    """Minutes of a training on the card of the published runs; None where none has a like number of Gaussians.

    The run on as many photos of this size gives seconds an iteration, or else those near in Gaussians, with their range.
    """
    stack = stack_memory(need.stack)
    if stack is None or not stack.family:
        return None
    family = families()[stack.family]
    names = family.runs
    if need.strategy == "mcmc" and stack.key == "gsplat":
        names = ("gsplat-mcmc",)
    count = need.gaussians.typical
    known = _runs(names, iterations)
    runs = [run for run in known if run.gaussians / NEAR <= count <= run.gaussians * NEAR]
    runs = [run for run in runs if run.like(need.photos, need.width, need.height)] or runs
    if not runs:
        return None
    minutes = sorted(run.seconds / run.iterations * iterations / 60.0 for run in runs)
    median = (minutes[(len(minutes) - 1) // 2] + minutes[len(minutes) // 2]) / 2
    note = f"median {median:.0f} of {len(minutes)} published, on their GPU"
    if not stack.own:
        note += ", for another stack of its family"
    return Expected(min(minutes), max(minutes), _names(runs), note, runs[0].source)


def _runs(methods: Sequence[str], iterations: int) -> Sequence[Run]:
    """The runs of so many iterations, or of as many as are published."""
    runs = [run for method in methods for run in published_runs()[method]]
    published = {run.iterations for run in runs}
    if iterations not in published:
        iterations = max(published, default=0)
    return [run for run in runs if run.iterations == iterations]


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    return tuple(run.name for run in runs)
