"""Which scenes a certification trains: bundled ones by the trainer's presets, or those of a data folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from splatfix.certify.model import Skipped, Suite
from splatfix.certify.trainer import list_scenes
from splatfix.core.errors import usage_error
from splatfix.core.runner import Runner
from splatfix.core.step import say

SCENE_TIMEOUT = 4 * 3600.0

GPU_ITERATIONS = 7000
"""The first evaluation of the reference implementation, with the schedule of the paper."""
CPU_ITERATIONS = 300
CPU_WIDTH = 320
"""Pixels. At full size (about 1.3 megapixels, a hundred thousand points) one step takes a CPU many seconds."""

# quick takes under a minute on two CPU cores
SUITES = {
    "quick": Suite("quick", ("courtyard", "study", "figurine"), 900.0),
    "standard": Suite("standard", ("courtyard", "figurine", "fruit", "plaza", "study", "trellis"), 3600.0),
}


def sample_suite(name: str, iterations: int | None = None, resolution: int | None = None) -> Suite:
    """The suite of that name. With another length or resolution its PSNR floors do not apply.

    Raises:
        SplatfixError: ``unknown-suite`` (exit code 2).
    """
    if name not in SUITES:
        raise usage_error(
            "unknown-suite", f"There is no suite {name!r}.", say(f"Choose from: {', '.join(SUITES)}")
        )
    return replace(SUITES[name], iterations=iterations, resolution=resolution)


def data_suite(
    root: Path,
    python: str,
    device: str,
    iterations: int | None = None,
    resolution: int | None = None,
    *,
    runner: Runner | None = None,
) -> Suite:
    """All scenes at or below ``root`` as a suite; the public ones that are missing are ``skipped``.

    On a GPU each scene has its usual resolution; on a CPU runs are shorter and smaller. Explicit values win.

    Raises:
        SplatfixError: no such folder (exit code 2), no scene in it (3), an environment that cannot run the trainer (3).
    """
    folder = root.absolute()
    document = list_scenes(folder, python, runner)
    on_cpu = device == "cpu"
    return Suite(
        "data",
        tuple(str(row["name"]) for row in document["scenes"]),
        SCENE_TIMEOUT,
        iterations=iterations or (CPU_ITERATIONS if on_cpu else GPU_ITERATIONS),
        resolution=resolution or (CPU_WIDTH if on_cpu else None),
        data=folder,
        skipped=tuple(Skipped(str(row["name"]), str(row["reason"])) for row in document["skipped"]),
    )
