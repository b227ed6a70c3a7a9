"""Renders a checked scene: what it is, what is wrong, which trainers take it; cameras and points from above, and its photos."""

import base64
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from splatfix.checks.scene.model import CheckedScene, StackVerdict
from splatfix.core.codec import to_json
from splatfix.core.words import counted, few
from splatfix.facts.scene.model import PILLOW_FORMATS, Scene, Vector
from splatfix.model import Status
from splatfix.report.console import escape, marked, prose, section
from splatfix.report.diagnosis import MARKS, show_finding
from splatfix.report.diagnosis_document import finding_json
from splatfix.report.marks import Mark, Table

MOST_PHOTOS = 60
"""On a contact sheet, evenly spaced."""
_THUMBNAIL, _MOST_DECODED = 160, 1 << 31
"""Pixels of one, and of all photos that are decoded for them: sixty PNGs of 24 million take half a minute."""


def headline(checked: CheckedScene) -> str:
    """The scene in one sentence."""
    scene = checked.scene
    number = Counter(finding.status for finding in checked.findings)
    problems = []
    for status, noun in ((Status.FAIL, "problem"), (Status.WARN, "warning")):
        if number[status]:
            problems.append(counted(number[status], noun))
    name = scene.folder.name or scene.folder
    if not scene.images:
        return f"{name}: not a scene that a trainer can load"
    loaders = sum(verdict.takes_it for verdict in checked.stacks)
    problems_text = " and ".join(problems) or "no problems"
    return f"{name}: {problems_text}, {loaders} of {len(checked.stacks)} loaders accept it"


def facts_of(checked: CheckedScene) -> Sequence[tuple[str, str]]:
    """What the scene has, by name."""
    scene = checked.scene
    sizes = {(photo.width, photo.height) for photo in scene.present.values() if photo.width}
    models = sorted(
        {image.camera.model for image in scene.images if image.camera is not None and image.camera.model}
    )
    if not scene.images:
        return (("layout", scene.layout or "none"), ("files", str(len(scene.photos))))
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
        ("cameras", f"{scene.cameras} ({few(models) or 'an angle of view'})"),
        ("points", points),
        ("copies", few([f"images_{divisor}" for divisor in sorted(scene.copies)])),
        ("host memory", memory),
    )


def show(console: Console, checked: CheckedScene) -> None:
    """On the terminal."""
    marked(console, Mark.BAD if checked.verdict else Mark.GOOD, escape(headline(checked)), indent=0)
    for name, value in facts_of(checked):
        if value:
            prose(console, f"  {name:<12}", escape(value))
    for finding in checked.findings:
        show_finding(console, finding)
    if not checked.scene.images:
        return
    section(console, "Trainers (by the source of their loaders; none was run)")
    answers: dict[tuple[Mark, str], list[str]] = {}
    for verdict in checked.stacks:
        mark = Mark.GOOD if verdict.takes_it else Mark.BAD
        answers.setdefault((mark, answer(verdict)), []).append(verdict.reader)
    for (mark, text), readers in answers.items():
        marked(console, mark, escape(f"{', '.join(readers)}: {text}"))


def answer(verdict: StackVerdict) -> str:
    """A verdict in words: the options that it needs, or the first error in the trainer's own words, where they are known."""
    if verdict.takes_it:
        options = ", ".join(refusal.option for refusal in verdict.refusals)
        return f"accepts it with {options}" if options else "accepts it"
    refusal = next(item for item in verdict.refusals if not item.option)
    text = refusal.says or f"{refusal.fault} (its error message is not known)"
    if refusal.way_out:
        text += f" (fix: {refusal.way_out})"
    return text


def document(checked: CheckedScene) -> dict[str, Any]:
    """The JSON of one scene; headers of photos are left out."""
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


def page(checked: CheckedScene) -> str:
    """The same as one HTML file, with a contact sheet."""
    from splatfix.report import html  # templates and certificates, which nothing else here needs

    rows = [(verdict.reader, answer(verdict), verdict.source) for verdict in checked.stacks]
    return html.page(
        "scene.html",
        headline=headline(checked),
        mark=(Mark.BAD if checked.verdict else Mark.GOOD).css,
        facts=[(name, value) for name, value in facts_of(checked) if value],
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
    sample: Sequence[Vector] = ()
    if scene.points is not None:
        sample = [point for point in scene.points.sample if all(map(math.isfinite, point))]
    sample = sample[:: max(1, len(sample) // 3000)]
    points = [flat(point) for point in sample]
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
