"""Applies planned edits to a scratch copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from splatfix.resolve.edits import PlannedEdit, edited


def apply_edits(copy: Path, edits: Sequence[PlannedEdit]) -> None:
    """Edit the files of a scratch copy in place; the person's checkout is never opened."""
    for name in dict.fromkeys(name for edit in edits for name in edit.files):
        path = copy / name
        # newline="" and surrogateescape: bytes that are not ours to change come back as they were
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read()
        with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(edited(name, text, edits))
