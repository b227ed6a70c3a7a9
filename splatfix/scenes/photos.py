"""Photos of a copy: turned as the reconstruction has them, and smaller by 2, 4 and 8. Pillow does the work, on all cores."""

from __future__ import annotations

import io
import os
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.files import write_bytes
from splatfix.core.reading import read_bytes
from splatfix.core.step import run
from splatfix.facts.scene.model import Photo, Scene
from splatfix.facts.scene.photos import orientation_entry

QUALITY = 95
_MOST_PHOTO = 1 << 30
_HEAD = 1 << 16
QUARTER_TURNS = (5, 6, 7, 8)
"""EXIF's orientations that exchange width and height."""


class Change(str, Enum):
    """What becomes of a photo."""

    COPIED = "copied"
    TURNED = "rotated upright"
    """As EXIF says: the pixels are stored upright."""
    UNTAGGED = "freed of the EXIF orientation, the pixels as they are"
    """The pixels stay, as the reconstruction has them, and EXIF says that they are upright."""


class PhotoJob(Struct, frozen=True):
    """One photo of a scene, and where it goes."""

    path: str
    """Below the scene's folder, and below the copy's."""
    change: Change
    copies: tuple[tuple[int, str], ...]
    """Divisors, and the path of each smaller copy."""


def jobs_of(scene: Scene, divisors: Sequence[int]) -> list[PhotoJob]:
    """What to do with every photo that is there."""
    cameras = {image.path: image.camera for image in scene.images}
    jobs = []
    for path, photo in scene.photos.items():
        if photo is None:
            continue
        camera = cameras.get(path)
        stated = (camera.width, camera.height) if camera is not None else (0, 0)
        folder, _, name = path.partition("/")
        copies: tuple[tuple[int, str], ...] = ()
        if folder == "images" and photo.format:
            copies = tuple((divisor, f"images_{divisor}/{name}") for divisor in divisors)
        jobs.append(PhotoJob(path, _change(photo, path in cameras, stated), copies))
    return jobs


def _change(photo: Photo, registered: bool, stated: tuple[int, int]) -> Change:
    if photo.orientation not in range(2, 9) or photo.format != "jpeg":
        return Change.COPIED
    upright = (photo.height, photo.width)
    if photo.orientation not in QUARTER_TURNS:
        upright = (photo.width, photo.height)
    # COLMAP reads pixels as they are stored, so that a half turn that its sizes do not show was none to it
    if registered and (stated == (photo.width, photo.height) or stated != upright):
        return Change.UNTAGGED
    return Change.TURNED


def write_photos(
    source: Path, out: Path, jobs: Sequence[PhotoJob], progress: Callable[[int, int], None]
) -> Mapping[Change, int]:
    """Write all photos and copies that are not there yet; each appears whole or not at all.

    Raises:
        SplatfixError: ``needs-pillow`` (exit code 2), ``photo-not-readable`` (1), ``cannot-write`` (3).
    """
    counts = dict.fromkeys(Change, 0)
    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        try:
            for number, job in enumerate(workers.map(lambda job: _write(source, out, job), jobs), 1):
                counts[job.change] += 1
                progress(number, len(jobs))
        except BaseException:
            workers.shutdown(cancel_futures=True)
            raise
    return counts


def _write(source: Path, out: Path, job: PhotoJob) -> PhotoJob:
    target = out / job.path
    missing = [(divisor, path) for divisor, path in job.copies if not (out / path).exists()]
    if target.exists() and not missing:
        return job
    content = read_bytes(source / job.path, _MOST_PHOTO)
    if not isinstance(content, bytes):
        raise _not_readable(job.path, content.reason if content else "it is gone")
    if not target.exists():
        if job.change is Change.TURNED:
            content = _turned(content, job.path)
        elif job.change is Change.UNTAGGED:
            content = untagged(content)
        write_bytes(target, content)
    elif job.change is Change.TURNED:
        content = target.read_bytes()
    if missing:
        for path, smaller in _smaller(content, job.path, missing):
            write_bytes(out / path, smaller)
    return job


def untagged(content: bytes) -> bytes:
    """A JPEG whose EXIF says that it is upright; nothing else of it changes."""
    start = content.find(b"Exif\0\0", 0, _HEAD)
    entry = orientation_entry(content[start : start + _HEAD]) if start >= 0 else None
    if entry is None:
        return content
    offset, form = entry
    changed = bytearray(content)
    struct.pack_into(form, changed, start + offset, 1)
    return bytes(changed)


def _turned(content: bytes, name: str) -> bytes:
    from PIL import ImageOps

    with _opened(content, name) as photo:
        return _saved(ImageOps.exif_transpose(photo), photo)


def _smaller(content: bytes, name: str, copies: Iterable[tuple[int, str]]) -> list[tuple[str, bytes]]:
    from PIL import Image

    made = []
    with _opened(content, name) as photo:
        pixels = photo
        if photo.mode == "P":
            pixels = photo.convert("RGBA" if "transparency" in photo.info else "RGB")
        for divisor, path in copies:
            size = (max(1, round(photo.width / divisor)), max(1, round(photo.height / divisor)))
            made.append((path, _saved(pixels.resize(size, Image.Resampling.LANCZOS), photo)))
    return made


def _opened(content: bytes, name: str) -> Any:
    image = _pillow()
    try:
        photo = image.open(io.BytesIO(content))
        photo.load()
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise _not_readable(name, str(error)) from error
    return photo


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        step = run(sys.executable, "-m", "pip", "install", "pillow")
        text = "This needs pillow, which is not installed beside splatfix."
        raise usage_error("needs-pillow", text, step) from error
    return Image


def _saved(image: Any, like: Any) -> bytes:
    """In the format of another one, with its colour profile and without its EXIF."""
    buffer = io.BytesIO()
    options: dict[str, Any] = {}
    if like.format == "JPEG":
        options["quality"] = QUALITY
    if profile := like.info.get("icc_profile"):
        options["icc_profile"] = profile
    image.save(buffer, format=like.format, **options)
    return buffer.getvalue()


def _not_readable(name: str, reason: str) -> SplatfixError:
    return SplatfixError.of("scenes.photo-not-readable", photo=PurePosixPath(name), reason=reason)
