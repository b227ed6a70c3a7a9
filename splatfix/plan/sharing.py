"""Divides the compilers that may run at once among builds that run side by side."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from splatfix.facts import Source
from splatfix.plan.plan import BuildWheel, Reason

_PREFIX = "MAX_JOBS="


def share_jobs(builds: Sequence[BuildWheel], sources: Sequence[Source]) -> tuple[tuple[BuildWheel, ...], int]:
    """The builds, each with its part of MAX_JOBS, and how many compilers they have together.

    All come with the same MAX_JOBS: what this machine's cores and free memory allow, or what the person asked for.
    """
    total = max((int(build.variables.get("MAX_JOBS", "1")) for build in builds), default=1)
    if len(builds) < 2:
        return tuple(builds), total
    parts = shares(total, [_files(source) or total for source in sources])
    return tuple(_with_part(build, part, total) for build, part in zip(builds, parts, strict=True)), total


def shares(total: int, files: Sequence[int]) -> list[int]:
    """How many of ``total`` compilers each build gets, in order, when all files take equally long.

    By the number of files, never more than a build has files, and at least one: those for whom none is left wait until
    an earlier one has ended.
    """
    parts: list[int] = []
    free, now = total, 0.0
    running: list[tuple[float, int]] = []
    for index, count in enumerate(files):
        while free == 0:
            now, freed = heapq.heappop(running)
            free += freed
        fair = round(free * count / sum(files[index:]))
        part = max(1, min(free, count, fair))
        parts.append(part)
        free -= part
        heapq.heappush(running, (now + -(-count // part), part))
    return parts


def _files(source: Source) -> int:
    """Files that are compiled one by one; 0 when setup.py computes the list."""
    return sum(len(module.sources) for module in source.modules)


def _with_part(build: BuildWheel, part: int, total: int) -> BuildWheel:
    reasons = tuple(
        Reason(f"{_PREFIX}{part} of {total}, which builds side by side share: {why}", reason.found_via)
        if reason.text.startswith(_PREFIX) and (why := reason.text.partition(": ")[2])
        else reason
        for reason in build.reasons
    )
    return replace(build, variables={**build.variables, "MAX_JOBS": str(part)}, reasons=reasons)
