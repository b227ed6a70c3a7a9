"""``splatfix scenes``: the sample scenes that a certification trains on, and scenes of the user's, checked by their files."""

from pathlib import Path

from msgspec import convert
from msgspec.structs import replace

from splatfix.app.result import Result
from splatfix.certify.scenes import check_sample, export_sample, find_samples
from splatfix.checks.scene import judge
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import write_text
from splatfix.facts.machine import resources
from splatfix.facts.scene.reader import read_scene, scenes_below
from splatfix.facts.system.live import System
from splatfix.report.console import err
from splatfix.report.progress import one_line
from splatfix.report.scene import (
    CheckedSample,
    ExportDocument,
    ExportedScene,
    FixedSceneDocument,
    Sample,
    SamplesDocument,
    SceneCheckDocument,
    scene_page,
)
from splatfix.scenes.fix import FixRequest as FixRequest  # built by the command line
from splatfix.scenes.fix import fix_scene


def list_scenes() -> Result[SamplesDocument]:
    """List every sample scene: layout, number and size of views, kind."""
    samples = tuple(convert(sample.summary(), Sample) for sample in find_samples())
    return Result("scenes list", SamplesDocument(samples))


def export_scenes(names: tuple[str, ...], out: Path) -> Result[ExportDocument]:
    """Copy sample scenes to ``out``.

    Raises:
        SplatfixError: ``unknown-scene`` (exit code 2), ``cannot-write`` (3).
    """
    exported = [ExportedScene(item.name, str(export_sample(item, out))) for item in find_samples(names)]
    return Result("scenes export", ExportDocument(tuple(exported)))


def check_scenes(
    names: tuple[str, ...], root: Path | None, html: Path | None = None
) -> Result[SceneCheckDocument]:
    """Compare the files of sample scenes with their checksums, and check scenes of the user's.

    Args:
        names: of sample scenes, or folders of a scene or of scenes.
        root: the folder with the samples.
        html: the file for a page of the one folder.

    Raises:
        SplatfixError: ``unknown-scene``, ``one-scene`` (exit code 2), ``cannot-write`` (3).
    """
    known = {sample.name for sample in find_samples()}
    samples = tuple(name for name in names if name in known)
    folders = [Path(name) for name in names if name not in known]
    for folder in folders:
        if not folder.is_dir():
            raise SplatfixError.of("app.unknown-scene", name=str(folder), known=sorted(known))
    memory = resources.probe(System()).memory_total if folders else None
    checked = []
    for folder in folders:
        for scene in scenes_below(folder):
            checked.append(judge(replace(read_scene(scene), host_memory=memory)))
    intact: list[CheckedSample] = []
    if samples or not folders:
        for item in find_samples(samples):
            intact.append(CheckedSample(item.name, tuple(check_sample(item, root))))
    exit_code = Exit.OK
    if any(sample.problems for sample in intact) or any(scene.verdict for scene in checked):
        exit_code = Exit.FAILURE
    if html is not None:
        if len(checked) != 1:
            raise SplatfixError.of("app.one-scene")
        write_text(html, scene_page(checked[0]))
    return Result("scenes check", SceneCheckDocument(tuple(intact), tuple(checked)), exit_code)


def fix(request: FixRequest) -> Result[FixedSceneDocument]:
    """Write a mended copy of a scene, and check that."""
    with one_line(err(), "copying") as progress:
        fixed = fix_scene(request, progress)
    checked = judge(read_scene(Path(fixed.folder)))
    document = FixedSceneDocument(fixed.folder, tuple(fixed.changes), checked)
    return Result("scenes fix", document, checked.verdict)
