"""The one way to read a scene's files: regular ones only, never waiting for a pipe, and no more than a limit that is named."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from typing import Iterator, Union

from smoke_trainer.errors import SceneError

Content = Union[bytes, mmap.mmap]

MAX_POINTS = 5_000_000  # a scan of a city; splats are trained on some hundred thousand
MAX_IMAGES = 100_000
MAX_PIXELS = 64_000_000  # of one image as it is decoded: 8000 x 8000, 256 MB
MAX_JSON = 32 << 20
MAX_LINE = 16 << 20  # all keypoints of one image are one line


def content_of(path: Path, most: int = 0) -> Content:
    """A file's bytes, mapped rather than copied.

    Args:
        most: the largest size in bytes; 0: any, for readers that look at no more than they need.

    Raises:
        OSError: it is not there, or may not be read.
        SceneError: it is no regular file, or larger than that.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise SceneError(
                f"{path} is not a file",
                "a folder, a pipe or a device is in its place",
                "copy the scene again",
            )
        if most and status.st_size > most:
            raise too_large(path, f"{most} bytes", f"it has {status.st_size}; copy or export the scene again")
        if not status.st_size:  # nothing can be mapped
            return b""
        return mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(handle)


def is_file(path: Path) -> bool:
    """Tell whether it is a file, links followed; `Path.is_file` raises for names that are too long."""
    return os.path.isfile(path)  # noqa: PTH113


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text file, stripped, one at a time; raises as :func:`content_of`, and for one beyond MAX_LINE."""
    content, start = content_of(path), 0
    while start < len(content):
        end = content.find(b"\n", start, start + MAX_LINE) + 1
        if not end and len(content) - start > MAX_LINE:
            raise too_large(path, f"{MAX_LINE} bytes in one line", "copy or export the scene again")
        end = end or len(content)
        yield content[start:end].decode("utf-8", errors="replace").strip()
        start = end


def too_large(path: Path, limit: str, hint: str = "train on a part of the scene") -> SceneError:
    """A file has more of something than is read; `limit` says how much that is."""
    return SceneError(f"{path} has more than {limit}", "that is the most that is read", hint)
