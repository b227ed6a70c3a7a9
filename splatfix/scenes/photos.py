"""Photos of a copy: as the reconstruction has and names them, in 8-bit RGB, and smaller by 2, 4 and 8. Pillow does the work, on
all cores."""

from __future__ import annotations

import io
import os
import struct
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from enum import Enum
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any

from msgspec import Struct

from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_bytes
from splatfix.core.reading import read_bytes
from splatfix.facts.scene.model import PILLOW_FORMATS, ROUNDING, Camera, Photo, Scene
from splatfix.facts.scene.photos import leads_out, orientation_entry

QUALITY = 95
_MOST_PHOTO = 1 << 29
_MOST_WORKERS = 16
_LARGE = 1 << 26
"""Pixels of a photo that is decoded alone: with what is made of it, it takes a gigabyte."""
_ALONE = Lock()
_HEAD = 1 << 16
QUARTER_TURNS = (5, 6, 7, 8)
"""EXIF's orientations that exchange width and height."""
_FORMATS = {".jpg": "JPEG", ".tif": "TIFF", **{f".{name.lower()}": name for name in PILLOW_FORMATS}}
"""By the ending of a photo's name."""


class Change(str, Enum):
    """What becomes of a photo."""

    COPIED = "copied"
    TURNED = "rotated upright"
    """As EXIF says: the pixels are stored upright."""
    UNTAGGED = "freed of the EXIF orientation, the pixels as they are"
    """The pixels stay, as the reconstruction has them, and EXIF says that they are upright."""
    CONVERTED = "converted to 8-bit RGB, or to the format of its name"


class PhotoJob(Struct, frozen=True):
    """One photo of a scene, and where it goes."""

    source: str
    """Below the scene's folder."""
    path: str
    """Below the copy's: as the reconstruction names it."""
    change: Change
    turned: bool
    """Its pixels are stored upright, whatever else becomes of it."""
    format: str
    """In the copy, by Pillow's name."""
    camera: Camera | None
    copies: tuple[tuple[int, str], ...]
    """Divisors, and the path of each smaller copy."""

    @property
    def by_pillow(self) -> bool:
        return bool(self.copies) or self.change in (Change.TURNED, Change.CONVERTED)


def jobs_of(scene: Scene, divisors: Sequence[int]) -> list[PhotoJob]:
    """What to do with every photo that is there, and is one."""
    cameras = {image.path: image.camera for image in scene.images}
    goes_to = {other: path for path, other in scene.elsewhere.items()}
    # how many times a photo is smaller than its camera states: by less nothing is divided, for that would enlarge it
    least = 0.0
    for image in scene.images:
        there = scene.photos.get(scene.elsewhere.get(image.path, image.path))
        if there and image.camera and image.camera.has_shape(there.width, there.height):
            least = max(least, image.camera.width / (there.width + ROUNDING))
    divisors = [divisor for divisor in divisors if divisor >= least]
    jobs = []
    for source, photo in scene.present.items():
        if not photo.format:
            continue
        path = goes_to.get(source, source)
        camera = cameras.get(path)
        mark = _mark(photo, path in cameras, camera)
        change, form = mark, photo.format.upper()
        ending = PurePosixPath(path).suffix.lower()
        if PurePosixPath(source).suffix.lower() != ending:
            form = _FORMATS.get(ending, form)
        if photo.unusual or form != photo.format.upper():
            change = Change.CONVERTED
        folder, _, name = path.partition("/")
        copies: tuple[tuple[int, str], ...] = ()
        if folder == "images":
            copies = tuple((divisor, f"images_{divisor}/{name}") for divisor in divisors)
        jobs.append(PhotoJob(source, path, change, mark is Change.TURNED, form, camera, copies))
    return jobs


def _mark(photo: Photo, registered: bool, camera: Camera | None) -> Change:
    """Decide what becomes of EXIF's orientation."""
    if photo.orientation not in range(2, 9) or photo.format != "jpeg":
        return Change.COPIED
    stated = (camera.width, camera.height) if camera is not None else (0, 0)
    upright = (photo.height, photo.width)
    if photo.orientation not in QUARTER_TURNS:
        upright = (photo.width, photo.height)
    # COLMAP reads pixels as they are stored, so that a half turn that its sizes do not show was none to it
    if registered and (stated == (photo.width, photo.height) or stated != upright):
        return Change.UNTAGGED
    return Change.TURNED


def require_pillow() -> None:
    """Raise ``needs-pillow`` (exit code 2) where it is not installed beside splatfix."""
    try:
        from PIL import Image
    except ImportError as error:
        raise SplatfixError.of("scenes.needs-pillow", executable=sys.executable) from error
    # above half of its limit of pixels it only warns, in the middle of the progress
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)


def write_photos(source: Path, out: Path, jobs: Sequence[PhotoJob], progress: Callable[[str], None]) -> None:
    """Write all photos and copies that are not there yet; each appears whole or not at all.

    Raises:
        SplatfixError: ``photo-not-readable`` (exit code 1), ``cannot-write`` (3).
    """
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_WORKERS)) as workers:
        try:
            for number, _ in enumerate(workers.map(lambda job: _write(source, out, job), jobs), 1):
                progress(f"photos: {number} of {len(jobs)}")
        except BaseException:
            workers.shutdown(cancel_futures=True)
            raise


def write_below(out: Path, path: str, content: bytes | Iterator[bytes]) -> None:
    """Write a file of the copy, and none elsewhere, whatever its name is.

    Raises:
        SplatfixError: ``leads-out`` (exit code 2), ``cannot-write`` (3).
    """
    if leads_out(out, path):
        raise SplatfixError.of("scenes.leads-out", folder=out, names=path)
    write_bytes(out / path, content)


def _write(source: Path, out: Path, job: PhotoJob) -> None:
    missing = [(divisor, path) for divisor, path in job.copies if not (out / path).exists()]
    done = (out / job.path).exists()
    if done and not missing:
        return
    content = read_bytes(out / job.path if done else source / job.source, _MOST_PHOTO)
    if not isinstance(content, bytes):
        raise _not_readable(job.source, content.reason if content else "it is gone")
    if not done:
        content = _changed(content, job)
        write_below(out, job.path, content)
    if missing:
        for path, smaller in _smaller(content, job, missing):
            write_below(out, path, smaller)


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


def _changed(content: bytes, job: PhotoJob) -> bytes:
    """The photo as it is in the copy."""
    if job.change is Change.UNTAGGED:
        return untagged(content)
    if job.change is Change.COPIED:
        return content
    from PIL import ImageOps

    with _opened(content, job.source) as photo:
        pixels = ImageOps.exif_transpose(photo) if job.turned else photo
        if job.change is Change.CONVERTED:
            has_alpha = pixels.mode in ("LA", "PA", "RGBA") or "transparency" in pixels.info
            # gray of 16 bits is scaled, for Pillow would clip it to white
            if pixels.mode.startswith("I"):
                pixels = pixels.convert("I").point(lambda value: value * (1 / 257) + 0.5).convert("L")
            pixels = pixels.convert("RGBA" if has_alpha else "RGB")
        return _saved(pixels, photo, job.format)


def _smaller(content: bytes, job: PhotoJob, copies: Sequence[tuple[int, str]]) -> list[tuple[str, bytes]]:
    from PIL import Image

    made = []
    with _opened(content, job.source) as photo:
        pixels = photo
        if photo.mode == "P":
            pixels = photo.convert("RGBA" if "transparency" in photo.info else "RGB")
        sides = photo.size
        # loaders take fractions of what the camera states, which photos of half that size are no longer
        if job.camera is not None and job.camera.has_shape(*sides):
            sides = job.camera.width, job.camera.height
        for divisor, path in copies:
            size = tuple(max(1, round(side / divisor)) for side in sides)
            made.append((path, _saved(pixels.resize(size, Image.Resampling.LANCZOS), photo, job.format)))
    return made


@contextmanager
def _opened(content: bytes, name: str) -> Iterator[Any]:
    """A photo, decoded.

    Raises:
        SplatfixError: ``photo-not-readable`` (exit code 1), for whatever Pillow makes of a file that somebody else wrote.
    """
    from PIL import Image

    try:
        photo = Image.open(io.BytesIO(content), formats=PILLOW_FORMATS)
        with _ALONE if photo.width * photo.height > _LARGE else nullcontext():
            photo.load()
            yield photo
    except MemoryError:
        raise
    except Exception as error:  # a damaged file ends Pillow in many ways, and not only by OSError
        raise _not_readable(name, str(error) or type(error).__name__) from error


def _saved(image: Any, like: Any, form: str) -> bytes:
    """Save in a format, with the colour profile of another image and without its EXIF."""
    buffer = io.BytesIO()
    options: dict[str, Any] = {}
    if form == "JPEG":
        options["quality"] = QUALITY
        if image.mode not in ("L", "CMYK"):
            image = image.convert("RGB")
    profile = like.info.get("icc_profile")
    # one of gray or CMYK says nothing of what became RGB
    if profile and (like.mode in ("P", "RGB", "RGBA") or image.mode == like.mode):
        options["icc_profile"] = profile
    image.save(buffer, format=form, **options)
    return buffer.getvalue()


def _not_readable(name: str, reason: str) -> SplatfixError:
    return SplatfixError.of("scenes.photo-not-readable", photo=PurePosixPath(name), reason=reason)
