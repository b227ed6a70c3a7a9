"""Held-out views, read from the report folder: one PNG each, with the rendering left and the ground truth right."""

import base64
import re
import struct
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct

from splatfix.certify.model import SceneRun
from splatfix.core.limits import MOST_PICTURES
from splatfix.core.reading import read_bytes


class View(Struct, frozen=True):
    """A picture that shows the rendering left and the ground truth right."""

    stem: str
    """Its name without the iteration, which the trainer puts first."""
    width: int
    """Pixels of one half."""
    height: int
    data: bytes

    @property
    def encoded(self) -> str:
        """Return the file, for a ``data:`` URL."""
        return base64.b64encode(self.data).decode("ascii")


class Views(Struct, frozen=True):
    """The pictures of one scene that go into the file, and why each other does not."""

    shown: list[View] = []
    left_out: list[str] = []


def read_views(folder: Path, runs: Sequence[SceneRun], most: int = MOST_PICTURES) -> list[Views]:
    """Return up to four views of each run, all first ones before any second, as long as there is room for ``most`` bytes, so that
    no scene goes without a picture for the sake of another."""
    views = [Views() for _ in runs]
    room = most
    for number in range(4):
        for run, scene in zip(runs, views, strict=True):
            for name in run.images[number : number + 1]:
                view = _read(folder, name, room)
                if isinstance(view, str):
                    scene.left_out.append(f"{name}: {view}")
                else:
                    scene.shown.append(view)
                    room -= len(view.data)
    return views


def _read(folder: Path, name: str, room: int) -> View | str:
    """Return a view, or why it is not in the page. A smaller copy of it (``thumbnails`` beside ``renders``) is taken instead."""
    path = PurePosixPath(name)
    smaller = folder.joinpath(*path.parts[:-2], "thumbnails", path.name)
    content = read_bytes(smaller, MOST_PICTURES)
    if content is None:
        content = read_bytes(folder / path, MOST_PICTURES)
    if content is None:
        return "there is no such file"
    if not isinstance(content, bytes):
        return content.reason
    if len(content) > room:
        return "the pictures before it take the room that this file has for them"
    # A PNG begins with its signature and the chunk IHDR, whose first two numbers are width and height.
    if content[:8] != b"\x89PNG\r\n\x1a\n" or content[12:16] != b"IHDR" or len(content) < 33:
        return "it is no PNG"
    width, height = struct.unpack(">II", content[16:24])
    if width < 2 or width % 2 or not height:
        return f"it does not hold two pictures side by side: width {width}"
    return View(re.sub(r"^[0-9]{6}_", "", path.stem), width // 2, height, content)
