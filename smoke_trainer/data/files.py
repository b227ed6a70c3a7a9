"""The one way to read a scene's files: regular ones only, never waiting for a pipe, and no line without an end."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Iterator, Union

from smoke_trainer.errors import Damage

Content = Union[bytes, mmap.mmap]

MAX_LINE = 16 << 20  # all keypoints of one image are one line


def content_of(path: Path) -> Content:
    """A file's bytes, mapped rather than copied: of some there are gigabytes.

    Raises:
        OSError: it is not there, or may not be read.
        Damage: it is no regular file.
    """
    if os.path.exists(path) and not is_file(path):  # noqa: PTH110
        raise Damage(path, "is not a file: a folder, a pipe or a device is in its place")
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:  # nothing can be mapped
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def is_file(path: Path) -> bool:
    """Tell whether it is a file, links followed; `Path.is_file` raises for names that are too long."""
    return os.path.isfile(path)  # noqa: PTH113


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text file, stripped, one at a time; raises as :func:`content_of`, and for one beyond MAX_LINE."""
    content, start = content_of(path), 0
    while start < len(content):
        end = content.find(b"\n", start, start + MAX_LINE) + 1
        if not end and len(content) - start > MAX_LINE:
            raise Damage(path, "has a line that is too long to be read")
        end = end or len(content)
        yield content[start:end].decode("utf-8", errors="replace").strip()
        start = end
