"""Whether the photos that were trained on are what their files hold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from splatfix.certify.criteria.criterion import criterion
from splatfix.certify.model import Criterion
from splatfix.certify.photos import Grid, Unknown, grid_of
from splatfix.certify.record import TrainingRecord
from splatfix.core.words import counted

MOST_OFF = 6.0
"""Of 255, of the mean color of a cell. Files that are decoded twice agree to 1, small JPEG with few and large blocks of color to
3.3; red and blue exchanged are 50 and more off on the sample scenes, a gamma of 1.1 is 9 off."""


def photos_decoded(record: TrainingRecord, folder: Path, most: int) -> Criterion:
    """Some photos are decoded again, by splatfix itself, and compared with what the trainer had of them.

    Args:
        folder: of the scene, with the files that are true.
        most: photos that are decoded; Python takes a second or more for a large one.
    """
    largest, worst, compared, reasons = 0.0, "", 0, []
    for photo in record.photos[:: max(1, -(-len(record.photos) // most))]:
        try:
            truth = grid_of(folder / photo.file)
        except Unknown as reason:
            reasons.append(str(reason))
            continue
        trained = photo.grid[: len(truth)]
        off = _off(truth, trained)
        compared += 1
        if off > largest:
            largest, worst = off, f"{photo.name} is off by {off:.1f} of 255, allowed {MOST_OFF:g}"
            if _off([[cell[::-1] for cell in row] for row in truth], trained) <= MOST_OFF:
                worst += ": red and blue are exchanged"
    met: bool | None = largest <= MOST_OFF
    measured = f"{counted(compared, 'photo')} agree to {largest:.1f} of 255"
    if not met:
        measured = worst
    elif not compared:
        met, measured = None, "; ".join(dict.fromkeys(reasons)) or "no photo was recorded"
    return criterion("photos-decoded", met, measured, most=MOST_OFF)


def _off(
    truth: Grid | Sequence[Sequence[Sequence[float]]], trained: Sequence[Sequence[Sequence[float]]]
) -> float:
    """The largest difference of a color; infinite where the grids do not fit."""
    ours, theirs = (list(chain.from_iterable(chain.from_iterable(grid))) for grid in (truth, trained))
    if len(ours) != len(theirs):
        return float("inf")
    return max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
