"""The scenes of a certification: the samples that come with splatfix, suites of them, and those of a data folder."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from smoke_trainer.data.find import PUBLIC_SCENES, survey
from smoke_trainer.errors import SmokeTrainerError
from splatfix.certify.advice import sentence
from splatfix.certify.model import Skipped
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import sha256_of
from splatfix.core.resources import SMOKE_TRAINER
from splatfix.core.step import say, value_options

SCENE_TIMEOUT = 4 * 3600.0

GPU_ITERATIONS = 7000
"""The first evaluation of the reference implementation, with the schedule of the paper."""
CPU_ITERATIONS = 300
CPU_WIDTH = 320
"""Pixels. At full size (about 1.3 megapixels, a hundred thousand points) one step takes a CPU many seconds."""


class Suite(Struct, frozen=True):
    """A named set of scenes: bundled ones, trained with the trainer's preset of that name, or those of a data folder."""

    name: str
    scenes: tuple[str, ...]
    timeout: float
    """Seconds per scene."""
    iterations: int | None = None
    """Overrides the preset."""
    resolution: int | None = None
    """Overrides the preset: 1, 2, 4, 8 divide the image size, larger values are a width in pixels."""
    data: Path | None = None
    """The folder with the scenes; None for bundled ones."""
    skipped: tuple[Skipped, ...] = ()
    """Known scenes that are not in the data folder."""
    strategy: str = ""
    """Of densification, as the trainer names it; "" leaves it to the trainer."""

    def trainer_arguments(self, scene: str) -> list[str]:
        """Command-line arguments that select scene, length and resolution."""
        options = {
            "--preset": self.name if self.data is None else None,
            "--data": self.data,
            "--iterations": self.iterations,
            "--resolution": self.resolution,
            "--strategy": self.strategy or None,
        }
        return [scene, *value_options(options)]


NO_SCENES = Suite("", (), 0.0)
"""Of a run level that trains nothing."""

# quick takes under a minute on two CPU cores
SUITES = {
    "quick": Suite("quick", ("courtyard", "study", "figurine"), 900.0),
    "standard": Suite("standard", ("courtyard", "figurine", "fruit", "plaza", "study", "trellis"), 3600.0),
}


def sample_suite(
    name: str | None, iterations: int | None = None, resolution: int | None = None, only: str | None = None
) -> Suite:
    """Return the suite of that name, or ``only`` one scene of it; with another length or resolution its PSNR floors do not apply.

    Without a name it is quick; for a scene that quick does not have, standard.

    Raises:
        SplatfixError: ``unknown-suite`` or ``unknown-scene`` (exit code 2).
    """
    if name is None:
        name = "standard" if only is not None and only not in SUITES["quick"].scenes else "quick"
    if name not in SUITES:
        raise SplatfixError.of("certify.unknown-suite", name=name, suites=SUITES)
    suite = replace(SUITES[name], iterations=iterations, resolution=resolution)
    if only is None:
        return suite
    (sample,) = find_samples((only,))
    if sample.name not in suite.scenes:
        raise SplatfixError.of("certify.not-in-suite", name=name, only=only, scenes=suite.scenes)
    return replace(suite, scenes=(sample.name,))


def data_suite(
    root: Path,
    device: str,
    iterations: int | None = None,
    resolution: int | None = None,
    *,
    every_public: bool = False,
) -> Suite:
    """Return all scenes at or below ``root`` as a suite; with ``every_public`` the public ones that are missing are ``skipped``.

    On a GPU each scene has its usual resolution; on a CPU runs are shorter and smaller. Explicit values win.

    Raises:
        SplatfixError: the trainer's own: no such folder (exit code 2), no scene in it (3).
    """
    folder = root.absolute()
    try:
        scenes, without = survey(folder)
    except SmokeTrainerError as error:
        todo = (say(sentence(error.hint)),) if error.hint else ()
        raise SplatfixError(
            error.code,
            sentence(error.message),
            meaning=sentence(error.note),
            todo=todo,
            exit_code=Exit(error.exit_code),
        ) from error
    skipped: dict[str, str] = {}
    if every_public:
        present = {scene.name for scene in scenes if scene.public}
        skipped = dict.fromkeys(
            (name for name in PUBLIC_SCENES if name not in present), f"not found in {folder}"
        )
    skipped.update(without)  # the trainer's own reason says more
    if device == "cpu":
        iterations, resolution = iterations or CPU_ITERATIONS, resolution or CPU_WIDTH
    return Suite(
        "data",
        tuple(scene.name for scene in scenes),
        SCENE_TIMEOUT,
        iterations=iterations or GPU_ITERATIONS,
        resolution=resolution,
        data=folder,
        skipped=tuple(Skipped(name, reason) for name, reason in skipped.items()),
    )


class SampleScene(Struct, frozen=True):
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
        row = {key: value for key, value in asdict(self).items() if key != "files"}
        return {**row, "size": list(self.size)}


def samples_folder() -> Path:
    """The folder with one folder per sample scene, and their index."""
    return SMOKE_TRAINER / "samples"


def find_samples(names: Iterable[str] = ()) -> tuple[SampleScene, ...]:
    """Return the samples of those names, all without one.

    Raises:
        SplatfixError: ``unknown-scene`` (exit code 2).
    """
    index = json.loads((samples_folder() / "samples.json").read_text(encoding="utf-8"))
    known = {row["name"]: SampleScene(**{**row, "size": tuple(row["size"])}) for row in index["scenes"]}
    chosen = tuple(names) or tuple(known)
    for name in chosen:
        if name not in known:
            raise SplatfixError.of("certify.unknown-sample", name=name, known=known)
    return tuple(known[name] for name in chosen)


def check_sample(sample: SampleScene, root: Path | None = None) -> tuple[str, ...]:
    """Return the files of ``root/NAME`` (default: the bundled scene) that are missing or changed, each with that word.

    Raises:
        SplatfixError: ``scene-not-found`` (exit code 3) where that folder does not exist.
    """
    folder = (root or samples_folder()) / sample.name
    if not folder.is_dir():
        raise SplatfixError.of(
            "certify.scene-not-found", folder=folder, sample_name=sample.name, parent=folder.parent
        )
    problems = []
    for name, digest in sample.files.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif sha256_of(path) != digest:
            problems.append(f"{name} has changed")
    return tuple(problems)


def export_sample(sample: SampleScene, out: Path) -> Path:
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
        raise SplatfixError.of(
            "certify.cannot-write", folder=folder, reason=error.strerror or error
        ) from error
    return folder
