"""The one way to read a scene's files: regular ones only, never waiting for a pipe, up to a size."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from typing import Union

from smoke_trainer.errors import SceneError

Content = Union[bytes, mmap.mmap]

LARGEST_TEXT = 1 << 30
"""Bytes. Read whole, as text files are; images.txt of 2,000 images with 10,000 keypoints each has 600 MB."""


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
            raise SceneError(
                f"{path} is too large to be read: {status.st_size} bytes, the limit is {most}",
                "the file is damaged, or not what its name says",
                "copy or export the scene again",
            )
        return mmap.mmap(handle, 0, access=mmap.ACCESS_READ) if status.st_size else b""
    finally:
        os.close(handle)


def text_of(path: Path, errors: str = "replace") -> str:
    """A text file, decoded as UTF-8; raises as :func:`content_of`, and UnicodeDecodeError for ``errors="strict"``."""
    return bytes(content_of(path, LARGEST_TEXT)).decode("utf-8", errors)
