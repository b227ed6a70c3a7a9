"""Whether a training repeats: the beginning of a run once more, with the same seed, compared iteration by iteration."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splatfix.certify.criteria.criterion import criterion
from splatfix.certify.model import Criterion
from splatfix.core.runner import Runner
from splatfix.core.words import counted

REPEATED = 30
"""Iterations; none of the presets densifies before, which would carry a difference of one bit on to other Gaussians."""
CPU_TOLERANCE = 1e-6
"""Relative difference of a loss. On a CPU two runs of one seed are equal to the last digit."""
GPU_TOLERANCE = 1e-2
"""Relative difference of a loss. Atomics add in an order that changes; how far that carries in 30 iterations was not
measured on a GPU. Another seed or another order of views differs by far more."""


def repeats(
    runner: Runner,
    argv: Sequence[str],
    timeout: float,
    device: str,
    first: Path,
    again: Path,
    variables: Mapping[str, str],
) -> Criterion:
    """Run the trainer again for REPEATED iterations, and compare the losses with those of the first run.

    Args:
        argv: of the first run.
        first: its output folder.
        again: a folder for the second.
    """
    command = [*argv, "--out", str(again), "--stop-after", str(REPEATED)]
    done = runner.run(command, timeout=timeout, env=variables, cwd=again.parent)
    pairs = list(zip(_losses(first), _losses(again), strict=False))
    allowed = CPU_TOLERANCE if device == "cpu" else GPU_TOLERANCE
    worst = max((_gap(before, after) for before, after in pairs), default=None)
    if worst is None:
        measured = f"the second run left no losses: {done.why() or 'none were written'}"
    else:
        count = counted(len(pairs), "iteration")
        measured = f"losses of {count} differ by at most {worst:.2g} of their value"
    return criterion(
        "training-repeats",
        worst is not None and done.ok and worst <= allowed,
        measured=measured,
        required=f"at most {allowed:g}, with the same seed",
        meaning="Two runs of one seed differ from the start: something is random that no seed sets, or memory is read unwritten.",
        source="a CPU repeats to the last digit; on a GPU atomics add in an order that changes",
    )


def _gap(one: float, other: float) -> float:
    return abs(one - other) / max(abs(one), 1e-12)


def _losses(folder: Path) -> list[float]:
    """Of each iteration in ``metrics.jsonl``, up to the first that is not a number; [] where it was not written."""
    try:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    losses: list[float] = []
    for line in lines[:REPEATED]:
        try:
            document: Any = json.loads(line)
        except ValueError:
            break
        loss = document.get("loss") if isinstance(document, Mapping) else None
        if not isinstance(loss, (int, float)) or not math.isfinite(loss):
            break
        losses.append(float(loss))
    return losses
