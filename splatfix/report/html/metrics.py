"""The trainer's metrics.jsonl as columns, and columns reduced to what a small chart can show."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import Struct, field

from splatfix.core.limits import MOST_METRICS
from splatfix.core.reading import Unread, read_text
from splatfix.core.words import counted

LARGEST = 1e60
"""No measurement is larger: float32 ends at 3.4e38, and what is beyond cannot be drawn."""
MEMORY = {
    "rss_gb": "resident",
    "vram_allocated_gb": "allocated on the GPU",
    "vram_reserved_gb": "reserved on the GPU",
}
"""Columns of memory in GiB."""
_COLUMNS = ("loss", "psnr", "gaussians", *MEMORY)

Values = list[float | None]
"""One value for each iteration; None where there is none, or none that is finite."""


class Metrics(Struct, frozen=True):
    """What the trainer wrote at each iteration."""

    iterations: tuple[int, ...] = ()
    columns: dict[str, Values] = field(default_factory=dict)
    phases: dict[str, Values] = field(default_factory=dict)
    """Milliseconds of each phase."""
    resets: tuple[int, ...] = ()
    """Iterations that reset the opacities."""
    unread: str = ""
    """What of the file could not be read, and why; "" for nothing."""


class Bucket(Struct, frozen=True):
    """Neighbouring iterations as one point."""

    iteration: float
    """Their mean."""
    low: float
    mean: float
    high: float


def read_metrics(path: Path) -> Metrics:
    """Read a metrics.jsonl; lines that are no measurement are counted and left out."""
    content = read_text(path, MOST_METRICS)
    if content is None:
        return Metrics(unread=f"{path.name} cannot be read: there is none")
    if isinstance(content, Unread):
        return Metrics(unread=f"{path.name} cannot be read: {content.reason}")
    lines = [line for line in content.splitlines() if line.strip()]
    rows = list(filter(None, map(_row, lines)))
    phases: dict[str, None] = {}
    for row in rows:
        phases.update(dict.fromkeys(row["ms"]))
    unread = ""
    if len(rows) < len(lines):
        unread = f"{path.name}: {len(lines) - len(rows)} of {counted(len(lines), 'line')} cannot be read"
    return Metrics(
        tuple(int(row["iteration"]) for row in rows),
        {name: [_finite(row.get(name)) for row in rows] for name in _COLUMNS},
        {name: [_finite(row["ms"].get(name)) for row in rows] for name in phases},
        tuple(int(row["iteration"]) for row in rows if row.get("opacity_reset") is True),
        unread,
    )


def reduced(iterations: Sequence[int], values: Values, most: int = 240) -> list[Bucket | None]:
    """At most ``most`` points with lowest, mean and highest value of each; None where no value is finite."""
    size = max(1, math.ceil(len(values) / most))
    buckets: list[Bucket | None] = []
    for start in range(0, len(values), size):
        known = [value for value in values[start : start + size] if value is not None]
        if known:
            mean_iteration = fmean(iterations[start : start + size])
            buckets.append(Bucket(mean_iteration, min(known), fmean(known), max(known)))
        else:
            buckets.append(None)
    return buckets


def _row(line: str) -> dict[str, Any] | None:
    """A line; None for one that was cut off when the trainer was killed, and for what else is no measurement."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or _finite(row.get("iteration")) is None:
        return None
    if not isinstance(row.get("ms"), dict):
        row["ms"] = {}
    return row


def _finite(value: object) -> float | None:
    # no struct is decoded here: a run has 30,000 lines, and a certificate thirteen runs
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < LARGEST else None
