"""Held-out views: ground truth and rendering with a boundary that slides, and their difference, all from one PNG each."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from splatfix.certify.model import SceneRun
from splatfix.core.reading import read_bytes
from splatfix.core.words import counted
from splatfix.report.html.markup import Html, element, items, join

MOST_VIEWS = 4
"""Of one scene."""
MOST_BYTES = 12 << 20
"""Of all pictures in the file together, as PNG; a third more as text."""
AMPLIFIED = 4
"""The difference is shown this many times as bright. The style sheet has the same number."""
SMALL = 256
"""Pixels. Pictures up to this width are enlarged without smoothing."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class View:
    """A picture that shows the rendering left and the ground truth right."""

    name: str
    """As it is in the report folder."""
    width: int
    """Pixels of one half."""
    height: int
    data: bytes


@dataclass(frozen=True)
class Views:
    """The pictures of one scene that go into the file."""

    shown: tuple[View, ...] = ()
    left_out: tuple[str, ...] = ()
    """Why each other is not there."""


def read_views(folder: Path, runs: Sequence[SceneRun], most: int = MOST_BYTES) -> list[Views]:
    """The views of each run: all first ones before any second, as long as there is room.

    Where the trainer left a smaller copy of a picture (``thumbnails`` beside ``renders``), that is taken.
    """
    # every scene's first view before any scene's second: no scene goes without a picture for the sake of another
    shown: list[list[View]] = [[] for _ in runs]
    left_out: list[list[str]] = [[] for _ in runs]
    room = most
    for number in range(MOST_VIEWS):
        for scene, run in enumerate(runs):
            if number >= len(run.images):
                continue
            name = run.images[number]
            try:
                view = _read(folder, name, room)
            except _Unshowable as obstacle:
                left_out[scene].append(f"{name}: {obstacle}")
            else:
                shown[scene].append(view)
                room -= len(view.data)
    return [Views(tuple(views), tuple(missing)) for views, missing in zip(shown, left_out, strict=True)]


def show_views(views: Views, scene: int, resolution: str) -> Html:
    """The pictures of one scene.

    Args:
        scene: its number, for the ids.
        resolution: that of the training, such as ``1600x1064``.
    """
    parts = [_show(view, f"view-{scene}-{number}", resolution) for number, view in enumerate(views.shown)]
    if views.left_out:
        parts.append(items("ul", (f"Not shown: {missing}." for missing in views.left_out), class_="note"))
    return join(*parts)


def _show(view: View, key: str, resolution: str) -> Html:
    width, height = view.width, view.height
    stem = re.sub(r"^[0-9]{6}_", "", PurePosixPath(view.name).stem)  # the trainer puts the iteration first
    data = base64.b64encode(view.data).decode("ascii")
    image = element(
        "image",
        id=key,
        width=2 * width,
        height=height,
        href=f"data:image/png;base64,{data}",
        class_="pixels" if width <= SMALL else None,
    )
    # One picture holds both halves: each panel shows it through a window of one half's size.
    rendering = element("use", href=f"#{key}")
    gt = element("use", href=f"#{key}", x=-width)
    difference = element("use", href=f"#{key}", x=-width, class_="difference")

    def panel(label: str, *layers: Html, class_: str) -> Html:
        box = f"0 0 {width} {height}"
        label = f"{label}, view {stem}"
        return element("svg", *layers, viewBox=box, role="img", aria_label=label, class_=class_)

    def half(label: str, layer: Html, class_: str) -> Html:
        drawing = panel(label, layer, class_=class_)
        return element("div", drawing, element("p", label.lower()), class_="half")

    boundary = element(
        "input",
        type="range",
        min=0,
        max=100,
        value=50,
        class_="cut",
        aria_label=f"Boundary between rendering (left) and ground truth (right), view {stem}",
    )
    compared = element(
        "div",
        half("Rendering", image, "rendering"),
        half("Ground truth", gt, "truth"),
        boundary,
        class_="compare",
    )
    error_layers = element("g", rendering, difference, class_="error")
    error = element(
        "div",
        panel(f"Error, {AMPLIFIED} times amplified", error_layers, class_="plain"),
        element("p", f"error, amplified {AMPLIFIED} times"),
        class_="panel",
    )
    caption = f"View {stem}, {width}x{height} px"
    if resolution not in ("", f"{width}x{height}"):
        caption += f" (reduced from {resolution})"
    return element(
        "figure",
        element("div", compared, error, class_="panels"),
        element("figcaption", caption),
        class_="view",
    )


class _Unshowable(Exception):
    """Why a picture is not in the page."""


def _read(folder: Path, name: str, room: int) -> View:
    """A view.

    Raises:
        _Unshowable: there is none, or it is no such picture.
    """
    path = PurePosixPath(name)
    smaller = folder.joinpath(*path.parts[:-2], "thumbnails", path.name)
    content = read_bytes(smaller, MOST_BYTES)
    if content is None:
        content = read_bytes(folder / path, MOST_BYTES)
    if content is None:
        raise _Unshowable("there is no such file")
    if not isinstance(content, bytes):
        raise _Unshowable(content.reason)
    if len(content) > room:
        raise _Unshowable("the pictures before it take the room that this file has for them")
    # A PNG begins with its signature and the chunk IHDR, whose first two numbers are width and height.
    if content[:8] != _SIGNATURE or content[12:16] != b"IHDR" or len(content) < 33:
        raise _Unshowable("it is no PNG")
    width, height = struct.unpack(">II", content[16:24])
    if width < 2 or width % 2 or not height:
        raise _Unshowable(f"it does not hold two pictures side by side: {counted(width, 'pixel')} wide")
    return View(name, width // 2, height, content)
