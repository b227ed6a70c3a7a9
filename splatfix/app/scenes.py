"""``splatfix scenes``: the sample scenes that a certification trains on, and scenes of the user's, checked by their files."""

from pathlib import Path

from msgspec import convert
from msgspec.structs import replace

from splatfix.app.result import Result
from splatfix.certify.scenes import export_sample, find_samples
from splatfix.checks.scene import judge
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import write_text
from splatfix.facts.machine import resources
from splatfix.facts.scene.reader import read_scene, scenes_below
from splatfix.facts.system.live import System
from splatfix.report.console import err
from splatfix.report.progress import one_line
from splatfix.report.scene import (
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
    rows = convert(list(find_samples().values()), tuple[Sample, ...])
    return Result("scenes list", SamplesDocument(rows))


def export_scenes(names: tuple[str, ...], out: Path) -> Result[ExportDocument]:
    """Copy sample scenes to ``out``.

    Raises:
        SplatfixError: ``unknown-scene`` (exit code 2), ``cannot-write`` (3).
    """
    exported = [ExportedScene(name, str(export_sample(name, out))) for name in find_samples(names)]
    return Result("scenes export", ExportDocument(tuple(exported)))


def check_scenes(folders: tuple[Path, ...], html: Path | None = None) -> Result[SceneCheckDocument]:
    """Check folders of a scene or of scenes.

    Args:
        html: the file for a page of the one scene.

    Raises:
        SplatfixError: ``unknown-scene``, ``one-scene`` (exit code 2), ``cannot-write`` (3).
    """
    for folder in folders:
        if not folder.is_dir():
            raise SplatfixError.of("app.unknown-scene", name=str(folder), known=find_samples())
    memory = resources.probe(System()).memory_total
    checked = []
    for folder in folders:
        for scene in scenes_below(folder):
            checked.append(judge(replace(read_scene(scene), host_memory=memory)))
    if html is not None:
        if len(checked) != 1:
            raise SplatfixError.of("app.one-scene")
        write_text(html, scene_page(checked[0]))
    exit_code = Exit.OK
    if any(scene.verdict for scene in checked):
        exit_code = Exit.FAILURE
    return Result("scenes check", SceneCheckDocument(tuple(checked)), exit_code)


def fix(request: FixRequest) -> Result[FixedSceneDocument]:
    """Write a mended copy of a scene, and check that."""
    with one_line(err(), "copying") as progress:
        fixed = fix_scene(request, progress)
    checked = judge(read_scene(Path(fixed.folder)))
    document = FixedSceneDocument(fixed.folder, tuple(fixed.changes), checked)
    return Result("scenes fix", document, checked.verdict)
