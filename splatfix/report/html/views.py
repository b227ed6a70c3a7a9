"""Held-out views: ground truth and rendering with a boundary that slides, and their difference, all from one PNG each."""

from __future__ import annotations

import base64
import re
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
    shown: list[list[View]] = [[] for _ in runs]
    left_out: list[list[str]] = [[] for _ in runs]
    room = most
    for number in range(MOST_VIEWS):
        for place, run in enumerate(runs):
            if number >= len(run.images):
                continue
            found = _read(folder, run.images[number], room)
            if isinstance(found, View):
                shown[place].append(found)
                room -= len(found.data)
            else:
                left_out[place].append(f"{run.images[number]}: {found}")
    return [Views(tuple(views), tuple(why)) for views, why in zip(shown, left_out, strict=True)]


def show_views(views: Views, scene: int, resolution: str) -> Html:
    """The pictures of one scene.

    Args:
        scene: its number, for the ids.
        resolution: that of the training, such as ``1600x1064``.
    """
    shown = [_show(view, f"view-{scene}-{number}", resolution) for number, view in enumerate(views.shown)]
    return join(
        (
            *shown,
            items("ul", (f"Not shown: {why}." for why in views.left_out), class_="note")
            if views.left_out
            else "",
        )
    )


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
    rendering = element("use", href=f"#{key}")
    truth = element("use", href=f"#{key}", x=-width)
    difference = element("use", href=f"#{key}", x=-width, class_="difference")
    box = f"0 0 {width} {height}"
    size = f"{width}x{height}"
    reduced = f" (reduced from {resolution})" if resolution not in ("", size) else ""

    def panel(words: str, *layers: Html, class_: str) -> Html:
        return element(
            "svg", *layers, viewBox=box, role="img", aria_label=f"{words}, view {stem}", class_=class_
        )

    compared = element(
        "div",
        element(
            "div", panel("Rendering", image, class_="rendering"), element("p", "rendering"), class_="half"
        ),
        element(
            "div", panel("Ground truth", truth, class_="truth"), element("p", "ground truth"), class_="half"
        ),
        element(
            "input",
            type="range",
            min=0,
            max=100,
            value=50,
            class_="cut",
            aria_label=f"Boundary between rendering (left) and ground truth (right), view {stem}",
        ),
        class_="compare",
    )
    error = element(
        "div",
        panel(
            f"Error, {AMPLIFIED} times amplified",
            element("g", rendering, difference, class_="error"),
            class_="plain",
        ),
        element("p", f"error, amplified {AMPLIFIED} times"),
        class_="panel",
    )
    return element(
        "figure",
        element("div", compared, error, class_="panels"),
        element("figcaption", f"View {stem}, {size} px{reduced}"),
        class_="view",
    )


def _read(folder: Path, name: str, room: int) -> View | str:
    """A view, or why it cannot be shown."""
    path = PurePosixPath(name)
    smaller = folder.joinpath(*path.parts[:-2], "thumbnails", path.name)
    content = read_bytes(smaller, MOST_BYTES)
    if content is None:
        content = read_bytes(folder / path, MOST_BYTES)
    if not isinstance(content, bytes):
        return content.reason if content else "there is no such file"
    if len(content) > room:
        return "the pictures before it take the room that this file has for them"
    if content[:8] != _SIGNATURE or content[12:16] != b"IHDR" or len(content) < 33:
        return "it is no PNG"
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    if width < 2 or width % 2 or not height:
        return f"it does not hold two pictures side by side: {counted(width, 'pixel')} wide"
    return View(name, width // 2, height, content)
