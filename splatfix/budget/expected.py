"""How many Gaussians and minutes to expect, as ranges with the published runs that they rest on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from splatfix.budget.model import Expected, Need, Span
from splatfix.knowledge.vram import Run, families, published_runs, stack_memory

MCMC_GROWTH = 1.05
"""Of the count at each densification (Kheradmand et al. 2024, section 4)."""
SHORT_DENSIFICATIONS = 6
"""Of a short run of the smoke trainer, at most: it takes a twelfth of the run each, from 20 to 70 % of it."""
NEAR = 2.0
"""A published run tells the time of a training of up to twice or half its Gaussians."""


def gaussians_expected(need: Need, cap: int | None = None) -> Expected | None:
    """The final count where nobody said it; None where no run tells.

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
    runs = _runs(family.runs, 30_000)
    if not runs or need.strategy == "mcmc":
        return None
    counts = [run.gaussians for run in runs]
    return Expected(min(counts), max(counts), _names(runs), "scenes of 125 to 311 photos", runs[0].source)


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

    The runs that are near in Gaussians give seconds an iteration, the range is that of the runs.
    """
    stack = stack_memory(need.stack)
    if stack is None or not stack.family:
        return None
    family = families()[stack.family]
    names = family.runs
    if need.strategy == "mcmc" and stack.key == "gsplat":
        names = ("gsplat-mcmc",)
    count = need.gaussians.typical
    runs = [run for run in _runs(names, 30_000) if run.gaussians / NEAR <= count <= run.gaussians * NEAR]
    if not runs:
        return None
    minutes = [run.seconds / run.iterations * iterations / 60.0 for run in runs]
    note = f"on the GPU of those runs, median {statistics.median(minutes):.0f}"
    if not stack.own:
        note += ", for another stack of its family"
    return Expected(min(minutes), max(minutes), _names(runs), note, runs[0].source)


def _runs(methods: Sequence[str], iterations: int) -> Sequence[Run]:
    known = published_runs()
    return [run for method in methods for run in known[method] if run.iterations == iterations]


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    return tuple(run.name for run in runs)
