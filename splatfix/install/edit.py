"""Applies planned edits: to a scratch copy, and with ``--in-place`` to a checkout."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from splatfix.core.files import write_bytes
from splatfix.resolve.edits import PlannedEdit, edited


def apply_edits(copy: Path, edits: Sequence[PlannedEdit]) -> None:
    """Edit the files below ``copy``, each whole or not at all; edited twice they are as edited once."""
    for name in edited_files(edits):
        path = copy / name
        mode = path.stat().st_mode & 0o7777
        # surrogateescape, and bytes: what is not ours to change comes back as it was
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        write_bytes(path, edited(name, text, edits).encode("utf-8", "surrogateescape"))
        path.chmod(mode)


def edited_files(edits: Sequence[PlannedEdit]) -> tuple[str, ...]:
    """Every file that these edits touch, once."""
    return tuple(dict.fromkeys(name for edit in edits for name in edit.files))


def digest_of(files: Iterable[Path]) -> str:
    """One digest over the content of files, by which a later change is seen; a file that is gone counts as a change."""
    state = hashlib.sha256()
    for path in files:
        state.update(path.read_bytes() if path.is_file() else b"gone")
        state.update(b"\0")
    return state.hexdigest()
