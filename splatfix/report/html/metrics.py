"""The trainer's metrics.jsonl, and columns of it reduced to what a small chart can show."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.json import Decoder

from splatfix.core.limits import MOST_METRICS
from splatfix.core.reading import read_text

Number = Annotated[float, Meta(gt=-1e60, lt=1e60)]
"""No measurement is larger: float32 ends at 3.4e38, and what is beyond cannot be drawn."""
Values = Sequence[float | None]
"""One value for each iteration; None where there is none, or none that is finite."""


class Line(Struct):
    """One iteration, as the trainer writes it."""

    iteration: int
    loss: Number | None = None
    psnr: Number | None = None
    gaussians: Number | None = None
    rss_gb: Number | None = None
    vram_allocated_gb: Number | None = None
    vram_reserved_gb: Number | None = None
    opacity_reset: bool = False
    ms: Mapping[str, Number | None] = {}
    """Milliseconds of each phase."""


class Point(Struct, frozen=True):
    """Neighbouring iterations as one point."""

    iteration: float
    """Their mean."""
    low: float
    mean: float
    high: float


def read_metrics(path: Path) -> tuple[list[Line], str]:
    """Read a metrics.jsonl; also return what of it could not be read, and why, "" for nothing. Lines that are no measurement are
    counted and left out, such as one that was cut off when the trainer was killed."""
    content = read_text(path, MOST_METRICS)
    if not isinstance(content, str):
        return [], f"{path.name} cannot be read"
    lines, rows, decoder = content.splitlines(), list[Line](), Decoder(Line)
    for line in lines:
        with suppress(ValueError):
            rows.append(decoder.decode(line))
    if len(rows) < len(lines):
        return rows, f"{path.name}: {len(lines) - len(rows)} of {len(lines)} lines cannot be read"
    return rows, ""


def reduced(iterations: Sequence[int], values: Values, most: int = 240) -> list[Point | None]:
    """Return at most ``most`` points with lowest, mean and highest value of each; None where no value is finite."""
    size = max(1, math.ceil(len(values) / most))
    points: list[Point | None] = []
    for start in range(0, len(values), size):
        known = [value for value in values[start : start + size] if value is not None]
        at = fmean(iterations[start : start + size])
        points.append(Point(at, min(known), fmean(known), max(known)) if known else None)
    return points
