"""``splatfix scenes``: the sample scenes that a certification trains on, and scenes of the user's, checked by their files."""

from pathlib import Path
from typing import Any

from msgspec.structs import replace
from rich.console import Console

from splatfix.app.result import Result
from splatfix.certify.scenes import check_sample, export_sample, find_samples
from splatfix.checks.scene import judge
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import write_text
from splatfix.facts.machine import resources
from splatfix.facts.scene.reader import read_scene, scenes_below
from splatfix.facts.system.live import System
from splatfix.report import scene as report
from splatfix.report.console import err, escape, marked, prose, table
from splatfix.report.marks import Mark
from splatfix.report.progress import one_line
from splatfix.scenes.fix import FixRequest as FixRequest  # built by the command line
from splatfix.scenes.fix import fix_scene


def list_scenes() -> Result:
    """Every sample scene: layout, number and size of views, kind."""
    samples = find_samples()
    rows = []
    for sample in samples:
        width, height = sample.size
        rows.append((sample.name, sample.layout, str(sample.views), f"{width}x{height}", sample.kind))
    return Result(
        "scenes list",
        lambda: {"scenes": [sample.summary() for sample in samples]},
        lambda console: table(console, ("scene", "layout", "views", "size", "kind"), rows),
    )


def export_scenes(names: tuple[str, ...], out: Path) -> Result:
    """Copy sample scenes to ``out``.

    Raises:
        SplatfixError: ``unknown-scene`` (exit code 2), ``cannot-write`` (3).
    """
    rows = [{"name": item.name, "folder": str(export_sample(item, out))} for item in find_samples(names)]

    def text(console: Console) -> None:
        for row in rows:
            console.print(escape(row["folder"]), soft_wrap=True)

    return Result("scenes export", lambda: {"scenes": rows}, text)


def check_scenes(names: tuple[str, ...], root: Path | None, html: Path | None = None) -> Result:
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
    checked = [
        judge(replace(read_scene(scene), host_memory=memory))
        for folder in folders
        for scene in scenes_below(folder)
    ]
    rows: list[dict[str, Any]] = []
    if samples or not folders:
        for item in find_samples(samples):
            rows.append({"name": item.name, "problems": list(check_sample(item, root))})
    exit_code = Exit.OK
    if any(row["problems"] for row in rows) or any(scene.verdict for scene in checked):
        exit_code = Exit.FAILURE
    if html is not None:
        if len(checked) != 1:
            raise SplatfixError.of("app.one-scene")
        write_text(html, report.page(checked[0]))

    def text(console: Console) -> None:
        for row in rows:
            prose(console, f"{escape(row['name'])}: ", escape("; ".join(row["problems"]) or "OK"))
        for number, scene in enumerate(checked):
            if number:
                console.print()
            report.show(console, scene)

    return Result(
        "scenes check",
        lambda: {"samples": rows, "scenes": [report.document(scene) for scene in checked]},
        text,
        exit_code,
    )


def fix(request: FixRequest) -> Result:
    """Write a mended copy of a scene, and check that.

    Raises:
        SplatfixError: as :func:`splatfix.scenes.fix.fix_scene` says.
    """
    with one_line(err(), "copying") as progress:
        fixed = fix_scene(request, progress)
    checked = judge(read_scene(Path(fixed.folder)))

    def text(console: Console) -> None:
        for change in fixed.changes:
            marked(console, Mark.GOOD, escape(change), indent=0)
        console.print(escape(fixed.folder), soft_wrap=True)
        report.show(console, checked)

    return Result(
        "scenes fix",
        lambda: {"folder": fixed.folder, "changes": list(fixed.changes), "scene": report.document(checked)},
        text,
        checked.verdict,
    )
