"""The headers of image files: format, size, channels, EXIF's orientation, and whether the file is whole.

Formats: JPEG (ITU-T T.81, annex B; EXIF 2.3, section 4.6), PNG (ISO/IEC 15948); others by their first bytes.
"""

import os
import stat
import struct
from pathlib import Path

from smoke_trainer.data.colmap_files import LFS_POINTER
from splatfix.core.reading import read_start
from splatfix.facts.scene.model import Photo

OTHER_FORMATS = {b"RIFF": "webp", b"II*\0": "tiff", b"MM\0*": "tiff", b"BM": "bmp", b"GIF8": "gif"}
ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"}
"""Of files that loaders open."""
CAMERA_ENDINGS = {".heic", ".heif", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2", ".avif"}
"""Of photos that Pillow and OpenCV do not open by themselves."""
_HEAD = 1 << 12
_TAIL = 1 << 6
_LONG_TAIL = 1 << 18
"""Phones write a film or a depth map behind the photo."""
_MOST_SEGMENTS = 200
_ORIENTATION = 0x0112
_TIFF = 6
"""Bytes of the name of an EXIF block."""
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""JPEG's markers of a frame, which states the size."""


def leads_out(folder: Path, name: str) -> bool:
    """Tell whether a name is no path below the folder: it is absolute, has ``..``, or a link in it leads out."""
    try:
        real = Path(os.path.realpath(folder / name))
    except ValueError:  # a letter that no file's name has
        return True
    path = Path(name)
    return path.is_absolute() or ".." in path.parts or not real.is_relative_to(os.path.realpath(folder))


def read_photo(path: Path) -> Photo | None:
    """The header of an image file; None where there is none of that name, a format of "" where it is no image."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return Photo("", 0)
    start = read_start(path, _HEAD)
    size = status.st_size
    ending = read_start(path, _TAIL, max(0, size - _TAIL))
    try:
        if start.startswith(b"\xff\xd8"):
            return _jpeg(path, start, size, ending)
        if start.startswith(b"\x89PNG\r\n\x1a\n"):
            return _png(start, size, ending)
    except (struct.error, LookupError, ValueError):
        return Photo("", size, ending=ending)
    if start.startswith(LFS_POINTER):
        return Photo("", size, pointer=True)
    form = next((name for magic, name in OTHER_FORMATS.items() if start.startswith(magic)), "")
    return Photo(form, size, ending=ending)


def _png(start: bytes, size: int, ending: bytes) -> Photo:
    if start[12:16] != b"IHDR":
        raise ValueError("no header")
    width, height, bits, kind = struct.unpack(">IIBB", start[16:26])
    alpha = bool(kind & 4) or b"tRNS" in start
    channels = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}[kind]
    if not (width and height):
        raise ValueError("no size")
    return Photo("png", size, width, height, channels, bits, alpha, 1, b"IEND" in ending, ending)


def _jpeg(path: Path, start: bytes, size: int, ending: bytes) -> Photo:
    orientation, offset = 1, 2
    for _ in range(_MOST_SEGMENTS):
        header = _part(path, start, offset, 4)
        marker = header[1]
        if header[0] != 0xFF:
            break
        if marker == 0xFF:  # padding
            offset += 1
            continue
        (length,) = struct.unpack(">H", header[2:4])
        if marker == 0xE1:
            # from the first directory of an EXIF block, where it has one
            exif = _part(path, start, offset + 4, min(length - 2, _HEAD))
            if entry := orientation_entry(exif):
                (value,) = struct.unpack_from(entry[1], exif, entry[0])
                orientation = value or orientation
        if marker in _FRAMES:
            bits, height, width, channels = struct.unpack(">BHHB", _part(path, start, offset + 4, 6))
            if not (width and height):
                raise ValueError("no size")
            # JPEG's mark of the end, in its last bytes or before what a phone put behind it
            end = b"\xff\xd9"
            ends = end in ending or end in read_start(path, _LONG_TAIL, max(0, size - _LONG_TAIL))[_HEAD:]
            return Photo("jpeg", size, width, height, channels, bits, False, orientation, ends, ending)
        offset += 2 + length
    raise ValueError("no frame")


def orientation_entry(content: bytes) -> tuple[int, str] | None:
    """Where an EXIF block, from its name on, has the orientation: the offset, and the form as ``struct`` writes it."""
    order = {b"Exif\0\0II": "<", b"Exif\0\0MM": ">"}.get(content[: _TIFF + 2])
    if order is None:
        return None
    try:
        first = _TIFF + struct.unpack_from(f"{order}I", content, _TIFF + 4)[0]
        for number in range(struct.unpack_from(f"{order}H", content, first)[0]):
            entry = first + 2 + 12 * number
            if struct.unpack_from(f"{order}H", content, entry)[0] == _ORIENTATION:
                return entry + 8, f"{order}H"
    except struct.error:
        pass  # the directory lies behind what was read, or nowhere
    return None


def _part(path: Path, start: bytes, offset: int, length: int) -> bytes:
    if offset + length <= len(start):
        return start[offset : offset + length]
    return read_start(path, length, offset)
