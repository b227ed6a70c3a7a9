"""Small text files in a folder that a person named, read with bounds: a checkout may also hold a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

_MAX_FILE = 1 << 20
_MAX_FILES = 600
_NOT_CODE = frozenset(
    {
        "data",
        "dataset",
        "datasets",
        "output",
        "outputs",
        "build",
        "dist",
        "node_modules",
        "__pycache__",
        "assets",
        "SIBR_viewers",
        "third_party",
        "venv",
        "env",
    }
)


def files_below(
    folder: Path, endings: tuple[str, ...], *, depth: int, skip: Iterable[str] = ()
) -> Iterator[Path]:
    """Files of these endings, ``depth`` levels down, in order of name; at most six hundred."""
    left = _MAX_FILES
    pending = [(folder, depth)]
    skipped = _NOT_CODE | set(skip)
    while pending and left:
        here, levels = pending.pop(0)
        for item in children_of(here):
            if item.suffix in endings and item.is_file():
                yield item
                left -= 1
                if not left:
                    return
            elif levels and item.name not in skipped and not item.is_symlink() and item.is_dir():
                pending.append((item, levels - 1))


def children_of(folder: Path) -> list[Path]:
    """What lies in a folder, in order of name and without what is hidden; nothing when it cannot be listed."""
    try:
        return sorted(item for item in folder.iterdir() if not item.name.startswith("."))
    except OSError:
        return []


def text_of(file: Path) -> str:
    """A small text file's content; "" when it is not there, not readable or too big to be source."""
    try:
        if file.stat().st_size > _MAX_FILE:
            return ""
        return file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
