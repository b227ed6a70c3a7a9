"""The trainer's metrics.jsonl as columns, and columns reduced to what a small chart can show."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Annotated

from msgspec import Meta, Struct, field
from msgspec.json import Decoder

from splatfix.core.limits import MOST_METRICS
from splatfix.core.reading import Unread, read_text

LARGEST = 1e60
"""No measurement is larger: float32 ends at 3.4e38, and what is beyond cannot be drawn."""
Number = Annotated[float, Meta(gt=-1e60, lt=1e60)]
"""No measurement is larger: float32 ends at 3.4e38, and what is beyond cannot be drawn."""
MEMORY = {
    "rss_gb": "resident",
    "vram_allocated_gb": "allocated on the GPU",
    "vram_reserved_gb": "reserved on the GPU",
}
"""Columns of memory in GiB."""

Values = list[float | None]
"""One value for each iteration; None where there is none, or none that is finite."""


class _Line(Struct):
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
    """Read a metrics.jsonl. Lines that are no measurement are counted and left out, such as one that was cut off when the trainer
    was killed."""
    content = read_text(path, MOST_METRICS)
    if content is None:
        return Metrics(unread=f"there is no {path.name}")
    if isinstance(content, Unread):
        return Metrics(unread=f"{path.name} cannot be read: {content.reason}")
    lines, rows, decoder = content.splitlines(), list[_Line](), Decoder(_Line)
    for line in lines:
        with suppress(ValueError):
            rows.append(decoder.decode(line))
    unread = ""
    if len(rows) < len(lines):
        unread = f"{path.name}: {len(lines) - len(rows)} of {len(lines)} lines cannot be read"
    columns = ("loss", "psnr", "gaussians", *MEMORY)
    phases = dict.fromkeys(name for row in rows for name in row.ms)
    return Metrics(
        tuple(row.iteration for row in rows),
        {name: [getattr(row, name) for row in rows] for name in columns},
        {name: [row.ms.get(name) for row in rows] for name in phases},
        tuple(row.iteration for row in rows if row.opacity_reset),
        unread,
    )


def reduced(iterations: Sequence[int], values: Values, most: int = 240) -> list[Bucket | None]:
    """Return at most ``most`` points with lowest, mean and highest value of each; None where no value is finite."""
    size = max(1, math.ceil(len(values) / most))
    buckets: list[Bucket | None] = []
    for start in range(0, len(values), size):
        bucket, known = None, [value for value in values[start : start + size] if value is not None]
        if known:
            at = fmean(iterations[start : start + size])
            bucket = Bucket(at, min(known), fmean(known), max(known))
        buckets.append(bucket)
    return buckets
