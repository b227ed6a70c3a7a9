"""The scenes of a certification: the samples that come with splatfix, suites of them, and those of a data folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from splatfix.certify.model import Skipped, Suite
from splatfix.certify.trainer import list_scenes
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.resources import smoke_trainer_folder
from splatfix.core.runner import Runner
from splatfix.core.step import run, say
from splatfix.knowledge.published import public_scenes

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
    every_public: bool = False,
    runner: Runner | None = None,
) -> Suite:
    """All scenes at or below ``root`` as a suite; the public ones that are missing are ``skipped``.

    On a GPU each scene has its usual resolution; on a CPU runs are shorter and smaller. Explicit values win.

    Args:
        every_public: also where none of the public ones is there.

    Raises:
        SplatfixError: no such folder (exit code 2), no scene in it (3), an environment that cannot run the trainer (3).
    """
    folder = root.absolute()
    document = list_scenes(folder, python, runner)
    on_cpu = device == "cpu"
    skipped = {str(row["name"]): str(row["reason"]) for row in document["skipped"]}
    if every_public:
        there = {row["name"] for row in document["scenes"] if row["dataset"]}
        absent = {name: f"not found in {folder}" for name in public_scenes() if name not in there}
        skipped = {**absent, **skipped}
    return Suite(
        "data",
        tuple(str(row["name"]) for row in document["scenes"]),
        SCENE_TIMEOUT,
        iterations=iterations or (CPU_ITERATIONS if on_cpu else GPU_ITERATIONS),
        resolution=resolution or (CPU_WIDTH if on_cpu else None),
        data=folder,
        skipped=tuple(Skipped(name, reason) for name, reason in skipped.items()),
    )


@dataclass(frozen=True)
class Sample:
    """One sample scene. ``size`` is (width, height) of its images in pixels; ``files`` maps each file to its SHA-256."""

    name: str
    kind: str
    layout: str
    views: int
    size: tuple[int, int]
    points: int
    files: Mapping[str, str]

    def summary(self) -> dict[str, Any]:
        """Everything but the checksums, for JSON."""
        row = {key: value for key, value in vars(self).items() if key != "files"}
        return {**row, "size": list(self.size)}


def samples_folder() -> Path:
    """The folder with one folder per sample scene, and their index."""
    return smoke_trainer_folder() / "samples"


def find_samples(names: Iterable[str] = ()) -> tuple[Sample, ...]:
    """The samples of those names, all without one.

    Raises:
        SplatfixError: ``unknown-scene`` (exit code 2).
    """
    index = json.loads((samples_folder() / "samples.json").read_text(encoding="utf-8"))
    known = {row["name"]: Sample(**{**row, "size": tuple(row["size"])}) for row in index["scenes"]}
    chosen = tuple(names) or tuple(known)
    for name in chosen:
        if name not in known:
            raise usage_error(
                "unknown-scene",
                f"There is no sample scene {name!r}.",
                say(f"Choose from: {', '.join(known)}"),
            )
    return tuple(known[name] for name in chosen)


def check_sample(sample: Sample, root: Path | None = None) -> tuple[str, ...]:
    """The files of ``root/NAME`` (default: the bundled scene) that are missing or changed, each with that word.

    Raises:
        SplatfixError: ``scene-not-found`` (exit code 3) where that folder does not exist.
    """
    folder = (root or samples_folder()) / sample.name
    if not folder.is_dir():
        raise SplatfixError(
            "scene-not-found",
            f"There is no scene {folder}.",
            todo=(
                run("splatfix", "scenes", "export", sample.name, "--out", folder.parent, text="Create it"),
            ),
            exit_code=Exit.UNDETERMINED,
        )
    problems = []
    for name, digest in sample.files.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            problems.append(f"{name} has changed")
    return tuple(problems)


def export_sample(sample: Sample, out: Path) -> Path:
    """Copy a sample scene to ``out/NAME`` and return that folder.

    Raises:
        SplatfixError: ``cannot-write`` (exit code 3).
    """
    folder = out / sample.name
    try:
        for name in sample.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(samples_folder() / sample.name / name, folder / name)
    except OSError as error:
        raise SplatfixError(
            "cannot-write",
            f"Cannot write {folder}: {error.strerror or error}.",
            meaning="The scene was not exported, or only in part.",
            todo=(say("Choose another folder with --out, or free space on that disk."),),
            exit_code=Exit.UNDETERMINED,
        ) from error
    return folder
