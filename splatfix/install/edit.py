"""Applies planned edits: to a scratch copy, and with ``--in-place`` to a checkout."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_bytes
from splatfix.core.step import say
from splatfix.model.steps import EditSource, InstallStep, PlannedEdit
from splatfix.plan.edits import edited


def edited_contents(copy: Path, edits: Sequence[PlannedEdit]) -> dict[Path, bytes]:
    """What the edits make of each file below ``copy`` that they touch."""
    contents = {}
    for name in edited_files(edits):
        # behind a link that leads out, of which a copy has nothing: the build will say so
        if not (copy / name).is_file():
            continue
        # surrogateescape, and bytes: what is not ours to change comes back as it was
        text = (copy / name).read_bytes().decode("utf-8", "surrogateescape")
        contents[copy / name] = edited(name, text, edits).encode("utf-8", "surrogateescape")
    return contents


def write_edits(contents: Mapping[Path, bytes]) -> None:
    """Write edited files, each whole or not at all, with the mode it had."""
    for path, content in contents.items():
        mode = path.stat().st_mode & 0o7777
        write_bytes(path, content)
        path.chmod(mode)


def require_editable(steps: Iterable[InstallStep]) -> None:
    """See that a checkout can be edited later, before minutes are spent on a build.

    Raises:
        SplatfixError: ``cannot-write-source``.
    """
    leave_away = say("Leave --in-place away: the edits are then made in a scratch copy only.")
    for step in steps:
        if not isinstance(step, EditSource):
            continue
        source = os.path.realpath(step.source)
        for name in edited_files(step.edits):
            path = Path(step.source) / name
            folder = os.path.realpath(path.parent)
            if os.path.commonpath([source, folder]) != source or path.is_symlink():
                reason = f"{name}, which is a link or lies behind one that leads out of {step.source}"
                raise SplatfixError.of("install.uneditable-source", reason=reason, todo=(leave_away,))
            if not os.access(path.parent, os.W_OK):
                reason = f"{path}, and {path.parent} cannot be written to"
                raise SplatfixError.of("install.uneditable-source", reason=reason)


def edited_files(edits: Sequence[PlannedEdit]) -> tuple[str, ...]:
    """Every file that these edits touch, once."""
    return tuple(dict.fromkeys(name for edit in edits for name in edit.files))
