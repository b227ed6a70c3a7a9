"""Scenes: the samples, and a checked scene as what it is, what is wrong, and which trainers take it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from rich.console import Console

from splatfix.checks.scene.model import CheckedScene
from splatfix.core.codec import to_json
from splatfix.core.words import counted, few
from splatfix.model import Status
from splatfix.report.console import escape, marked, pairs, section, show_rows, table
from splatfix.report.diagnosis import MARKS, finding_json, show_finding
from splatfix.report.forms import writes
from splatfix.report.marks import Badge, Mark, Table, mark_of
from splatfix.report.templates import page

LOADERS = "Trainers, by the source of their loaders; none was run"


class Sample(Struct, frozen=True, kw_only=True):
    """A row of ``scenes list``."""

    name: str
    kind: str
    layout: str
    views: int
    size: tuple[int, int]
    """Width and height in pixels."""
    points: int


class SamplesDocument(Struct, frozen=True):
    """Every sample scene."""

    scenes: tuple[Sample, ...]


@writes(SamplesDocument, command="scenes list")
def show_samples(console: Console, document: SamplesDocument) -> None:
    """Print a line for each."""
    rows = []
    for item in document.scenes:
        rows.append((item.name, item.layout, str(item.views), "x".join(map(str, item.size)), item.kind))
    table(console, ("scene", "layout", "views", "size", "kind"), rows)


class ExportedScene(Struct, frozen=True):
    """A row of ``scenes export``."""

    name: str
    folder: str


class ExportDocument(Struct, frozen=True):
    """Samples that were copied."""

    scenes: tuple[ExportedScene, ...]


@writes(ExportDocument, command="scenes export")
def show_exported(console: Console, document: ExportDocument) -> None:
    """Print the folder of each."""
    for item in document.scenes:
        console.print(escape(item.folder), soft_wrap=True)


class SceneCheckDocument(Struct, frozen=True):
    """Scenes of the user's."""

    scenes: tuple[CheckedScene, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the content of the JSON document."""
        return {"scenes": list(map(scene_json, self.scenes))}


@writes(SceneCheckDocument)
def show_check(console: Console, document: SceneCheckDocument) -> None:
    """Print each scene with what is wrong and which trainers take it."""
    for number, checked in enumerate(document.scenes):
        if number:
            console.print()
        show(console, checked)


class FixedSceneDocument(Struct, frozen=True):
    """A mended copy of a scene, checked."""

    folder: str
    changes: tuple[str, ...]
    scene: CheckedScene

    def to_json(self) -> dict[str, Any]:
        """Return the content of the JSON document."""
        return {"folder": self.folder, "changes": list(self.changes), "scene": scene_json(self.scene)}


@writes(FixedSceneDocument)
def show_fixed(console: Console, document: FixedSceneDocument) -> None:
    """Print what was changed, and what is left."""
    for change in document.changes:
        marked(console, Mark.GOOD, escape(change), indent=0)
    console.print(escape(document.folder), soft_wrap=True)
    show(console, document.scene)


def headline(checked: CheckedScene) -> str:
    """Return the scene in one line."""
    scene = checked.scene
    number = Counter(finding.status for finding in checked.findings)
    name = scene.folder.name or scene.folder
    if not scene.images:
        return f"{name}: not a scene that a trainer can load"
    problems, warnings = counted(number[Status.FAIL], "problem"), counted(number[Status.WARN], "warning")
    takers = sum(verdict.takes_it for verdict in checked.stacks)
    return f"{name}: {problems}, {warnings}, {takers} of {len(checked.stacks)} loaders accept it"


def facts_of(checked: CheckedScene) -> Sequence[tuple[str, str]]:
    """Return what the scene has, by name; without what it has not."""
    scene = checked.scene
    if not scene.images:
        return (("layout", scene.layout or "none"), ("files", str(len(scene.photos))))
    sizes = {(photo.width, photo.height) for photo in scene.present.values() if photo.width}
    models = {image.camera.model for image in scene.images if image.camera is not None}
    points = "none (trainers start from random ones)"
    if scene.damage:
        points = "not readable"
    elif scene.points is not None:
        points = f"{scene.points.count:,}"
    memory = "not known"
    if checked.host_bytes is not None:
        memory = f"{checked.host_bytes / 2**30:.2f} GiB to load it with Inria's trainer (computed)"
    return (
        ("layout", scene.layout or "none"),
        ("images", f"{len(scene.images)} in the reconstruction, {counted(len(scene.present), 'file')}"),
        ("size", few([f"{width}x{height}" for width, height in sorted(sizes)])),
        ("cameras", f"{scene.cameras} ({few(sorted(models - {''})) or 'an angle of view'})"),
        ("points", points),
        ("copies", few([f"images_{divisor}" for divisor in sorted(scene.copies)])),
        ("host memory", memory),
    )


def show(console: Console, checked: CheckedScene) -> None:
    """Print one scene."""
    marked(console, mark_of(not checked.verdict), escape(headline(checked)), indent=0)
    pairs(console, facts_of(checked))
    for finding in checked.findings:
        show_finding(console, finding)
    if not checked.scene.images:
        return
    section(console, LOADERS)
    show_rows(console, loaders(checked))


def loaders(checked: CheckedScene) -> Table:
    """Return a row for each loader: the options that it needs, or its first error, in its own words where they are known."""
    rows = []
    for verdict in checked.stacks:
        text = " ".join(("accepts it", *(f"with {item.option}" for item in verdict.refusals)))
        if not verdict.takes_it:
            refusal = next(item for item in verdict.refusals if not item.option)
            text = refusal.says or f"{refusal.fault} (its error message is not known)"
            if refusal.way_out:
                text += f" (fix: {refusal.way_out})"
        rows.append((verdict.reader, Badge(mark_of(verdict.takes_it), text), verdict.source))
    return Table(("loader", "verdict", "read in"), rows)


def scene_json(checked: CheckedScene) -> dict[str, Any]:
    """Return one scene for a JSON document; headers of photos are left out."""
    scene = checked.scene
    held_out = None
    if scene.layout == "blender":
        held_out = sum(bool(image.held_out) for image in scene.images)
    return {
        "name": scene.folder.name,
        "folder": str(scene.folder),
        "layout": scene.layout,
        "problems": [item.summary for item in checked.findings if item.status is not Status.SKIP],
        "images": len(scene.images),
        "held_out": held_out,
        "photos": len(scene.photos),
        "points": None if scene.points is None else scene.points.count,
        "host_bytes": checked.host_bytes,
        "findings": list(map(finding_json, checked.findings)),
        "stacks": [{**to_json(verdict), "takes_it": verdict.takes_it} for verdict in checked.stacks],
    }


def scene_page(checked: CheckedScene) -> str:
    """Return the same as one HTML file."""
    rows = []
    for item in checked.findings:
        evidence = "; ".join(entry.value for entry in item.evidence)
        todo = "; ".join(step.line() for step in item.remedy)
        rows.append((item.code, Badge(MARKS[item.status], item.summary), evidence, todo))
    return page(
        "plain.html",
        command="splatfix scenes check",
        headline=headline(checked),
        mark=mark_of(not checked.verdict).css,
        remark="Checked by headers: no photo was decoded, and no trainer was run.",
        sections=[
            ("The scene", facts_of(checked)),
            ("Findings", Table(("check", "finding", "evidence", "what to do"), rows)),
            (LOADERS, loaders(checked)),
        ],
    )
