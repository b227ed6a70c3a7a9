"""What the phases of a trainer cost that ``splatfix monitor --phases`` starts: its Python loads the observer, unedited."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from splatfix.certify.criteria.resources import bound_by
from splatfix.certify.staging import stage_observer
from splatfix.core.files import object_in
from splatfix.knowledge.dropins import DROPINS

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
    modules = {item.module.partition(".")[0] for item in DROPINS} | {"gsplat"}
    settings = {
        "out": str(out.resolve()),
        "checkout": str(Path.cwd()),
        "cpu": False,
        "extensions": sorted(modules),
    }
    return {**os.environ, **stage_observer(staged, settings)}


def costs_of(out: Path) -> PhaseCosts | None:
    """Return what was observed; None where no process of the command trained in a Python that loads the observer."""
    records = [object_in(path).get("record", {}) for path in sorted(out.glob("observed-*.json"))]
    record: Mapping[str, Any] = max(records, key=lambda item: int(item.get("iterations", 0)), default={})
    if not record.get("phases"):
        return None
    memory = record["memory"]
    held = memory["host"] or {"train": None, "eval": None}
    if memory["cuda"]:
        held = {name: memory["cuda"][name]["allocated"] for name in ("train", "eval")}
    return PhaseCosts(
        iterations=record["iterations"],
        seconds={"load": record["seconds"]["setup"] or 0.0, **record["phases"]},
        bound=bound_by(record["phases"]),
        training_gb=held["train"] and held["train"] / GIB,
        evaluation_gb=held["eval"] and held["eval"] / GIB,
        growth_gb=memory["growth"] and memory["growth"]["per_1000"] / GIB,
    )
