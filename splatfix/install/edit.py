"""Applies planned edits: to a scratch copy, and with ``--in-place`` to a checkout."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_bytes
from splatfix.model.steps import EditSource, InstallStep, PlannedEdit
from splatfix.plan.edits import edited


def edited_contents(copy: Path, edits: Sequence[PlannedEdit]) -> dict[Path, bytes]:
    """Return what the edits make of each file below ``copy`` that they touch."""
    contents = {}
    for name in dict.fromkeys(name for edit in edits for name in edit.files):
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
    """See that a checkout can be edited later, before minutes are spent on a build; raises ``cannot-write-source``."""
    for step in steps:
        if not isinstance(step, EditSource):
            continue
        for path in (Path(step.source, name) for edit in step.edits for name in edit.files):
            reason = ""
            if path.is_symlink() or not path.parent.resolve().is_relative_to(Path(step.source).resolve()):
                reason = f"{path}, which is a link or lies behind one that leads out of {step.source}"
            elif not os.access(path.parent, os.W_OK):
                reason = f"{path}, and {path.parent} cannot be written to"
            if reason:
                raise SplatfixError.of("install.uneditable-source", reason=reason)
