"""The trainer's metrics.jsonl as columns, and columns reduced to what a small chart can show."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from splatfix.core.reading import Unread, read_text
from splatfix.core.words import counted
from splatfix.report.results import finite

MOST = 128 << 20
"""Bytes of metrics.jsonl. 30,000 iterations have 17 MB."""
POINTS = 240
"""Points of a curve."""
MEMORY = {
    "rss_gb": "resident",
    "vram_allocated_gb": "allocated on the GPU",
    "vram_reserved_gb": "reserved on the GPU",
}
"""Columns of memory in GiB."""
_COLUMNS = ("loss", "psnr", "gaussians", *MEMORY)

Values = list[float | None]
"""One value for each iteration; None where there is none, or none that is finite."""


@dataclass(frozen=True)
class Metrics:
    """What the trainer wrote at each iteration."""

    iterations: tuple[int, ...] = ()
    columns: dict[str, Values] = field(default_factory=dict)
    phases: dict[str, Values] = field(default_factory=dict)
    """Milliseconds of each phase."""
    resets: tuple[int, ...] = ()
    """Iterations that reset the opacities."""
    unread: str = ""
    """What of the file could not be read, and why; "" for nothing."""


@dataclass(frozen=True)
class Bucket:
    """Neighbouring iterations as one point."""

    place: float
    """Their mean iteration."""
    low: float
    mean: float
    high: float


def read_metrics(path: Path) -> Metrics:
    """Read a metrics.jsonl; lines that are no measurement are counted and left out."""
    content = read_text(path, MOST)
    if not isinstance(content, str):
        return Metrics(
            unread=f"{path.name} cannot be read: {content.reason if isinstance(content, Unread) else 'there is none'}"
        )
    rows = [_row(line) for line in content.splitlines() if line.strip()]
    good = [row for row in rows if row is not None]
    timed: dict[str, None] = {}
    for row in good:
        timed.update(dict.fromkeys(_phases(row)))
    damaged = len(rows) - len(good)
    return Metrics(
        tuple(int(row["iteration"]) for row in good),  # type: ignore[call-overload]
        {name: [finite(row.get(name)) for row in good] for name in _COLUMNS},
        {name: [finite(_phases(row).get(name)) for row in good] for name in timed},
        tuple(int(row["iteration"]) for row in good if row.get("opacity_reset") is True),  # type: ignore[call-overload]
        f"{path.name}: {damaged} of {counted(len(rows), 'line')} cannot be read" if damaged else "",
    )


def reduced(iterations: Sequence[int], values: Values, most: int = POINTS) -> list[Bucket | None]:
    """At most ``most`` points with lowest, mean and highest value of each; None where no value is finite."""
    size = max(1, math.ceil(len(values) / most))
    found: list[Bucket | None] = []
    for start in range(0, len(values), size):
        part = [value for value in values[start : start + size] if value is not None]
        place = fmean(iterations[start : start + size])
        found.append(Bucket(place, min(part), fmean(part), max(part)) if part else None)
    return found


def _row(line: str) -> dict[str, object] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and finite(row.get("iteration")) is not None else None


def _phases(row: dict[str, object]) -> dict[str, object]:
    phases = row.get("ms")
    return phases if isinstance(phases, dict) else {}
