"""What the phases of a trainer cost that ``splatfix monitor --phases`` starts: its Python loads the observer, unedited."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from msgspec import Struct

from splatfix.certify.criteria.resources import bound_by
from splatfix.certify.inside.phases import of_a_run
from splatfix.certify.stacks.child import configure, stage_observer
from splatfix.core.files import object_in
from splatfix.knowledge.dropins import DROPINS

SERIES = "metrics.jsonl"
LEAST_ITERATIONS = 100
"""With one number of Gaussians, from which on growth is told."""
GIB = float(1 << 30)


class PhaseCosts(Struct, frozen=True):
    """Time and memory of a training by phase, as its own process saw them. Memory in GiB: allocated on the GPU, or resident."""

    iterations: int
    seconds: Mapping[str, float]
    """Of load, forward, backward, optimizer, densify, evaluation, and other."""
    bound: str
    """Which phase takes most, and how much all would gain if it took no time."""
    training_gb: float | None
    evaluation_gb: float | None
    growth_gb: float | None
    """In 1,000 iterations, since the number of Gaussians changed last; None: too few."""


def observed_environment(staged: Path, out: Path) -> Mapping[str, str]:
    """Return variables with which a command's Python loads the observer, from one folder, to write into another that exists."""
    stage_observer(staged)
    modules = {item.module.partition(".")[0] for item in DROPINS} | {"gsplat"}
    settings = {
        "out": str(out.resolve()),
        "checkout": str(Path.cwd()),
        "cpu": False,
        "extensions": sorted(modules),
    }
    search_path = os.pathsep.join(filter(None, [str(staged), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": search_path, **configure(out, settings)}


def costs_of(out: Path) -> PhaseCosts | None:
    """Return what was observed; None where no process of the command trained in a Python that loads the observer."""
    records = [object_in(path) for path in sorted(out.glob("observed-*.json"))]
    record: Mapping[str, Any] = max(records, key=lambda item: int(item.get("backward", 0)), default={})
    passes, state = int(record.get("backward", 0)), record.get("phases") or {}
    seconds = of_a_run(state, passes)
    if not passes or seconds is None:
        return None
    growth = growth_of(out / SERIES)
    # 0: nothing was allocated on a GPU, or resident memory is not told
    training, evaluation = (state["memory"].get(name) or None for name in ("train", "eval"))
    return PhaseCosts(
        iterations=passes,
        seconds={"load": state.get("load") or 0.0, **seconds},
        bound=bound_by(seconds),
        training_gb=training and training / GIB,
        evaluation_gb=evaluation and evaluation / GIB,
        growth_gb=growth and growth[0],
    )


def growth_of(path: Path) -> tuple[float, int, int] | None:
    """Return, of the last stretch with one number of Gaussians, the GiB in 1,000 iterations, by the medians of its first and its
    last fifth, and its first and last iteration; None where it is too short."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):  # its writer was killed
        return None
    last = list(takewhile(lambda row: row["gaussians"] == rows[-1]["gaussians"], reversed(rows)))[::-1]
    if len(last) < LEAST_ITERATIONS:
        return None
    fifth = len(last) // 5
    held = [row.get("vram_allocated_gb", row["rss_gb"]) for row in last]
    grown = statistics.median(held[-fifth:]) - statistics.median(held[:fifth])
    return 1000.0 * float(grown) / (len(last) - fifth), last[0]["iteration"], last[-1]["iteration"]
