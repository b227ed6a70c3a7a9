"""The suite of a data folder: every scene that the trainer finds there, and how much of it a CPU can be asked to train."""

from __future__ import annotations

from pathlib import Path

from splatfix.certify.model import Skipped
from splatfix.certify.suites import Suite
from splatfix.certify.trainer_tool import ask_trainer
from splatfix.core.runner import Runner

LISTING_TIMEOUT = 120.0
SCENE_TIMEOUT = 4 * 3600.0

GPU_ITERATIONS = 7000
"""The reference implementation's own first test; the schedule is then the paper's, not a compressed one."""
CPU_ITERATIONS = 300
CPU_WIDTH = 320
"""Pixels. At their usual sizes (about 1.3 megapixels, a hundred thousand points) one step takes a CPU many seconds."""


def data_suite(
    root: Path,
    python: str,
    device: str,
    iterations: int | None = None,
    resolution: int | None = None,
    *,
    runner: Runner | None = None,
) -> Suite:
    """All scenes at or below ``root`` as a suite; the public ones that are missing are its ``skipped``.

    On a GPU each scene has its usual resolution and budget of Gaussians; on a CPU it is smaller and shorter. What is
    given wins over either.

    Raises:
        SplatfixError: no such folder (exit code 2), no scene in it (3), an environment that cannot look (3).
    """
    folder = root.absolute()
    document = ask_trainer("data", (str(folder), "--json"), python, LISTING_TIMEOUT, runner)
    names = tuple(str(row["name"]) for row in document["scenes"])
    on_cpu = device == "cpu"
    return Suite(
        "data",
        f"{len(names)} scene(s) of {folder}",
        names,
        SCENE_TIMEOUT,
        iterations=iterations or (CPU_ITERATIONS if on_cpu else GPU_ITERATIONS),
        resolution=resolution or (CPU_WIDTH if on_cpu else None),
        data=folder,
        skipped=tuple(Skipped(str(row["name"]), str(row["reason"])) for row in document["skipped"]),
    )
