"""The sample scenes that come with splatfix: what they are, whether their files are intact, and copies of them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.resources import smoke_trainer_folder
from splatfix.core.step import run, say


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
