"""The scenes of a certification: the samples that come with splatfix, suites of them, and those of a data folder."""

import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from smoke_trainer.data.find import survey
from smoke_trainer.errors import SmokeTrainerError, exit_code_of
from splatfix.certify.advice import sentence
from splatfix.certify.model import Skipped
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.resources import SMOKE_TRAINER
from splatfix.core.step import say

SAMPLES = SMOKE_TRAINER / "samples"
"""The folder with one folder per sample scene, and their index."""
GPU_ITERATIONS = 7000
"""The first evaluation of the reference implementation, with the schedule of the paper."""
CPU_ITERATIONS = 300
CPU_WIDTH = 320
"""Pixels. At full size (about 1.3 megapixels, a hundred thousand points) one step takes a CPU many seconds."""


class Suite(Struct, frozen=True):
    """A named set of scenes: bundled ones, trained with the trainer's preset of that name, those of a data folder, or none."""

    name: str = ""
    scenes: tuple[str, ...] = ()
    timeout: float = 4 * 3600.0
    """Seconds per scene."""
    iterations: int | None = None
    """Overrides the preset."""
    resolution: int | None = None
    """Overrides the preset: 1, 2, 4, 8 divide the image size, larger values are a width in pixels."""
    data: Path | None = None
    """The folder with the scenes; None for bundled ones."""
    skipped: tuple[Skipped, ...] = ()
    """Public scenes that are not in a data folder which has others of them."""
    strategy: str = ""
    """Of densification, as the trainer names it; "" leaves it to the trainer."""


_LINKED = (".jpg", ".jpeg", ".png", ".npy", ".npz", ".exr", ".tif", ".tiff", ".webp")
"""Files of a scene that no trainer writes to, by their endings."""

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
    if only not in suite.scenes:
        raise SplatfixError.of("certify.not-in-suite", name=name, only=only, scenes=suite.scenes)
    return replace(suite, scenes=(only,))


def data_suite(
    root: Path, device: str, iterations: int | None = None, resolution: int | None = None
) -> Suite:
    """Return all scenes at or below ``root`` as a suite.

    On a GPU each scene has its usual resolution; on a CPU runs are shorter and smaller. Explicit values win.

    Raises:
        SplatfixError: the trainer's own: no such folder (exit code 2), no scene in it (3).
    """
    folder = root.absolute()
    try:
        scenes, without = survey(folder)
    except SmokeTrainerError as error:
        what, meaning = sentence(error.message), sentence(error.note)
        todo = (say(sentence(error.hint)),) if error.hint else ()
        code, exit_code = error.code, Exit(exit_code_of(error.code))
        raise SplatfixError(code, what, meaning=meaning, todo=todo, exit_code=exit_code) from error
    if device == "cpu":
        iterations, resolution = iterations or CPU_ITERATIONS, resolution or CPU_WIDTH
    return Suite(
        "data",
        tuple(scene.name for scene in scenes),
        iterations=iterations or GPU_ITERATIONS,
        resolution=resolution,
        data=folder,
        skipped=tuple(Skipped(name, reason) for name, reason in without),
    )


def find_samples(names: Iterable[str] = ()) -> dict[str, Mapping[str, Any]]:
    """Return what is known of the samples of those names, all without one, by name: kind, layout, number of views, the size of
    their images in pixels, points.

    Raises:
        SplatfixError: ``unknown-scene`` (exit code 2).
    """
    index = json.loads((SAMPLES / "samples.json").read_text(encoding="utf-8"))
    known = {row["name"]: row for row in index["scenes"]}
    chosen = tuple(names) or tuple(known)
    for name in chosen:
        if name not in known:
            raise SplatfixError.of("certify.unknown-sample", name=name, known=known)
    return {name: known[name] for name in chosen}


def export_sample(name: str, out: Path) -> Path:
    """Copy a sample scene to ``out/NAME`` and return that folder; raises as :func:`copy_scene`."""
    return copy_scene(SAMPLES / name, out / name, link=False)


def copy_scene(scene: Path, destination: Path, *, link: bool = True) -> Path:
    """Copy a scene, for a trainer that may write into it, as Inria's does with ``points3D.ply``, with links to images where
    possible.

    Links are followed, for many have their photos elsewhere; not those to a folder around them, which have no end.

    Raises:
        SplatfixError: ``cannot-write`` (exit code 3).
    """

    def leads_back(parent: str, names: list[str]) -> list[str]:
        around = Path(parent).resolve()
        return [name for name in names if around.is_relative_to(Path(parent, name).resolve())]

    def copy(source: str, target: str) -> None:
        if link and Path(source).suffix.lower() in _LINKED:
            with suppress(OSError):  # no links here
                Path(target).symlink_to(Path(source).resolve())
                return
        shutil.copyfile(source, target)

    options: Any = {"ignore": leads_back, "ignore_dangling_symlinks": True, "dirs_exist_ok": True}
    try:
        shutil.copytree(scene, destination, copy_function=copy, **options)
    except OSError as error:
        reason: object = error
        if isinstance(error, shutil.Error):  # which has a row of each file
            reason = error.args[0][0][-1]
        raise SplatfixError.of("certify.cannot-write", folder=destination, reason=reason) from error
    return destination
