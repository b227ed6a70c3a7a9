"""Scratch copies of source folders, in which planned edits are made, so that a build never touches the checkout."""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_bytes
from splatfix.core.resources import user_cache
from splatfix.core.scratch import PREFIX, ScratchFolder, sweep
from splatfix.facts.source.copying import LeftOut, copy_source
from splatfix.model.steps import BuildWheel, EditSource, InstallStep, PlannedEdit
from splatfix.plan.edits import edited

# torch adds no architecture flags when any nvcc flag contains this text, and include flags contain the scratch path.
_FORBIDDEN = "arch"


class Scratch(Struct, frozen=True):
    """Folders of one build; all below ``root``."""

    root: Path
    copy: Path
    """Of the repository, or of the source folder alone."""
    source: Path
    """What is built: ``copy`` or a folder in it."""
    wheels: Path
    temporary: Path
    left_out: tuple[LeftOut, ...] = ()
    """What ``copy`` does without."""


@contextmanager
def scratch_folder(base: Path | None = None, source: str = "") -> Iterator[Scratch]:
    """Make a fresh folder, removed at the end whatever happens. Its path never contains "arch".

    The same ``source`` gets the same path when that is free: compiler caches take the path for a part of what they compile.
    """
    name = ""
    if source:
        name = f"{PREFIX}{hashlib.sha256(os.fsencode(source)).hexdigest()[:12]}"
    problems = []
    for place in [base] if base else _bases():
        try:
            if _FORBIDDEN in str(place.resolve()):
                raise OSError(f"its path contains {_FORBIDDEN!r}")
            place.mkdir(parents=True, exist_ok=True)
            folder = ScratchFolder(place.resolve(), PREFIX, name)
        except OSError as error:
            problems.append(f"{place}: {error.strerror or error}")
            continue
        try:
            root = folder.path
            made = Scratch(root, root / "source", root / "source", root / "wheels", root / "tmp")
            made.wheels.mkdir()
            made.temporary.mkdir()
            yield made
        finally:
            folder.remove()
        return
    raise SplatfixError.of("install.no-scratch", problems="; ".join(problems), forbidden=_FORBIDDEN)


def copy_to_build(step: BuildWheel, scratch: Scratch) -> Scratch:
    """Fill a fresh folder with the step's source, or the repository around it, and make the step's edits there."""
    repository = Path(step.repository or step.source)
    copy = scratch.copy / name_of_copy(repository)
    left_out = copy_source(Path(step.source), copy, repository)
    source = copy / Path(step.source).relative_to(repository)
    write_edits(edited_contents(source, step.edits))
    return replace(scratch, copy=copy, source=source, left_out=left_out)


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


def name_of_copy(folder: Path) -> str:
    """Return a copy's name: its folder's, which a setup.py may build by, unless it is one a compiler or torch may not take."""
    if _FORBIDDEN in folder.name or not re.fullmatch(r"[\w.+-]+", folder.name, re.ASCII):
        return "source"
    return folder.name


def sweep_scratch() -> None:
    """Remove what killed runs of this user left."""
    sweep(_bases())


def _bases() -> list[Path]:
    """Return where scratch folders may be, in order of preference. Paths with a blank come last: torch calls the C++ compiler in
    CXX without quotes, and a compiler cache's script is in the scratch folder."""
    # what is made in the last has an unforeseeable name and belongs to its owner alone
    bases = [Path(tempfile.gettempdir()), user_cache() / "scratch", Path("/tmp")]  # nosec B108
    return sorted(bases, key=lambda base: any(letter.isspace() for letter in str(base)))
