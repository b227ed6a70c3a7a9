"""Scenes: the samples, and a checked scene as what it is, what is wrong, and which trainers take it."""

import base64
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import Struct
from rich.console import Console

from splatfix.checks.scene.model import CheckedScene, StackVerdict
from splatfix.core.codec import to_json
from splatfix.core.words import counted, few
from splatfix.facts.scene.model import PILLOW_FORMATS, Scene
from splatfix.model import Status
from splatfix.report.console import escape, marked, prose, section, table
from splatfix.report.diagnosis import MARKS, finding_json, show_finding
from splatfix.report.forms import writes
from splatfix.report.html.page import page
from splatfix.report.marks import Mark, Table, mark_of

MOST_PHOTOS = 60
"""On a contact sheet, evenly spaced."""
_THUMBNAIL, _MOST_DECODED = 160, 1 << 31
"""Pixels of one, and of all photos that are decoded for them: sixty PNGs of 24 million take half a minute."""


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


@writes(SamplesDocument)
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


@writes(ExportDocument)
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
    loaders = sum(verdict.takes_it for verdict in checked.stacks)
    return f"{name}: {problems}, {warnings}, {loaders} of {len(checked.stacks)} loaders accept it"


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
    facts = (
        ("layout", scene.layout or "none"),
        ("images", f"{len(scene.images)} in the reconstruction, {counted(len(scene.present), 'file')}"),
        ("size", few([f"{width}x{height}" for width, height in sorted(sizes)])),
        ("cameras", f"{scene.cameras} ({few(sorted(models - {''})) or 'an angle of view'})"),
        ("points", points),
        ("copies", few([f"images_{divisor}" for divisor in sorted(scene.copies)])),
        ("host memory", memory),
    )
    return [(name, value) for name, value in facts if value]


def show(console: Console, checked: CheckedScene) -> None:
    """Print one scene."""
    marked(console, mark_of(not checked.verdict), escape(headline(checked)), indent=0)
    for name, value in facts_of(checked):
        prose(console, f"  {name:<12}", escape(value))
    for finding in checked.findings:
        show_finding(console, finding)
    if not checked.scene.images:
        return
    section(console, "Trainers (by the source of their loaders; none was run)")
    answers: dict[tuple[Mark, str], list[str]] = {}
    for verdict in checked.stacks:
        answers.setdefault((mark_of(verdict.takes_it), answer(verdict)), []).append(verdict.reader)
    for (mark, text), readers in answers.items():
        marked(console, mark, escape(f"{', '.join(readers)}: {text}"))


def answer(verdict: StackVerdict) -> str:
    """Return a verdict in words: the options that it needs, or the first error, in the loader's words where they are known."""
    if verdict.takes_it:
        options = [refusal.option for refusal in verdict.refusals]
        return " ".join(filter(None, ("accepts it", *(f"with {option}" for option in options))))
    refusal = next(item for item in verdict.refusals if not item.option)
    text = refusal.says or f"{refusal.fault} (its error message is not known)"
    if refusal.way_out:
        text += f" (fix: {refusal.way_out})"
    return text


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
    """Return the same as one HTML file, with a contact sheet."""
    rows = [(verdict.reader, answer(verdict), verdict.source) for verdict in checked.stacks]
    return page(
        "scene.html",
        headline=headline(checked),
        mark=mark_of(not checked.verdict).css,
        facts=facts_of(checked),
        findings=checked.findings,
        marks=MARKS,
        stacks=Table(("loader", "verdict", "read in"), rows),
        drawing=from_above(checked.scene),
        photos=thumbnails(checked.scene),
    )


def from_above(scene: Scene) -> Mapping[str, Sequence[tuple[float, ...]]] | None:
    """Cameras (position and where they look) and points, in 0..100 across and down; None where there are no poses.
    Above is where the tops of most photos point to."""
    poses = [image.pose for image in scene.images if image.pose is not None]
    if not poses:
        return None
    up = _unit([-fmean(pose.rotation[1][axis] for pose in poses) for axis in range(3)])
    least = min(range(3), key=lambda axis: abs(up[axis]))
    other = [0.0, 0.0, 0.0]
    other[least] = 1.0
    right = _unit(_cross(up, other))
    front = _cross(right, up)

    def flat(point: Sequence[float]) -> tuple[float, float]:
        return _dot(right, point), _dot(front, point)

    cameras = [(flat(pose.position), flat(pose.rotation[2])) for pose in poses]
    finite = []
    if scene.points is not None:
        finite = [point for point in scene.points.sample if all(map(math.isfinite, point))]
    points = [flat(point) for point in finite[:: max(1, len(finite) // 3000)]]
    center_x = fmean(position[0] for position, _ in cameras)
    center_y = fmean(position[1] for position, _ in cameras)
    distances = sorted(max(abs(x - center_x), abs(y - center_y)) for x, y in points)
    reach = max(max(abs(x - center_x), abs(y - center_y)) for (x, y), _ in cameras)
    if distances:
        # sized for 95 % of the points: a few lie far away
        reach = max(reach, distances[int(0.95 * (len(distances) - 1))])
    scale = 46.0 / (reach or 1.0)

    def drawn(x: float, y: float) -> tuple[float, float]:
        return round(50.0 + scale * (x - center_x), 2), round(50.0 + scale * (y - center_y), 2)

    shown = [drawn(*point) for point in points]
    return {
        "points": [point for point in shown if 0 <= point[0] <= 100 and 0 <= point[1] <= 100],
        "cameras": [(*drawn(*position), 4.0 * look[0], 4.0 * look[1]) for position, look in cameras],
    }


def _unit(vector: Sequence[float]) -> tuple[float, float, float]:
    length = math.hypot(*vector)
    if not length:
        return 0.0, 0.0, 1.0
    x, y, z = (value / length for value in vector)
    return x, y, z


def _dot(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))


def _cross(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    (a, b, c), (d, e, f) = first, second
    return b * f - c * e, c * d - a * f, a * e - b * d


def thumbnails(scene: Scene) -> Sequence[tuple[str, str]]:
    """Name and data address of some photos, evenly spaced; none without Pillow, and without those that it cannot open."""
    try:
        from PIL import Image
    except ImportError:  # it belongs to what is certified, not to splatfix
        return ()
    registered = {image.path for image in scene.images}
    paths = [path for path, photo in scene.present.items() if photo.format]
    made, pixels = [], 0
    for path in paths[:: max(1, math.ceil(len(paths) / MOST_PHOTOS))]:
        buffer = io.BytesIO()
        try:
            with Image.open(scene.folder / path, formats=PILLOW_FORMATS) as photo:
                photo.draft("RGB", (_THUMBNAIL, _THUMBNAIL))
                pixels += photo.width * photo.height
                if pixels > _MOST_DECODED:
                    break
                small = photo.convert("RGB")
                small.thumbnail((_THUMBNAIL, _THUMBNAIL))
                small.save(buffer, "JPEG", quality=70)
        except MemoryError:
            raise
        # whatever Pillow makes of a damaged file: the findings name it
        except Exception:  # noqa: BLE001, S112  # nosec B112
            continue
        data = base64.b64encode(buffer.getvalue()).decode()
        caption = Path(path).name
        if registered and path not in registered:
            caption += " (not in the reconstruction)"
        made.append((caption, f"data:image/jpeg;base64,{data}"))
    return made
