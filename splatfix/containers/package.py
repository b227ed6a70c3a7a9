"""Packs the very splatfix that is running into a wheel, with no build backend and no network, and reads what it requires."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

import splatfix
from splatfix.containers._toml import parse_toml
from splatfix.core.errors import SplatfixError
from splatfix.core.resources import bundled, smoke_trainer_folder
from splatfix.core.step import say

_PACKAGE = Path(splatfix.__file__).resolve().parent
_BUNDLED = ("patches", "dockerfiles", "constraints.txt")
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The oldest time a zip file can hold: equal sources give an equal wheel, byte for byte."""


@dataclass(frozen=True)
class OwnMetadata:
    """What splatfix says of itself to an installer."""

    version: str
    requires_python: str
    requires: tuple[str, ...]
    """Requires-Dist lines; those of an extra carry ``; extra == "..."``."""
    scripts: Mapping[str, str]


def own_metadata() -> OwnMetadata:
    """The metadata of the running splatfix: from pyproject.toml in a checkout, else from what the installer recorded.

    The checkout wins because the record of an editable install is as old as the install.
    """
    pyproject = _PACKAGE.parent / "pyproject.toml"
    if pyproject.is_file():
        project = parse_toml(pyproject.read_text(encoding="utf-8"))["project"]
        requires = list(project.get("dependencies", ()))
        for extra, lines in project.get("optional-dependencies", {}).items():
            requires += [_of_extra(line, extra) for line in lines]
        scripts = project.get("scripts", {})
        return OwnMetadata(splatfix.__version__, project["requires-python"], tuple(requires), scripts)
    try:
        distribution = importlib.metadata.distribution("splatfix")
    except importlib.metadata.PackageNotFoundError as error:
        raise SplatfixError(
            "own-metadata-missing",
            f"The splatfix at {_PACKAGE} has no metadata, so what it requires is not known.",
            meaning="It was copied there instead of installed.",
            todo=(say("Install splatfix with pip or pipx."),),
        ) from error
    return OwnMetadata(
        splatfix.__version__,
        distribution.metadata["Requires-Python"] or ">=3.10",
        tuple(distribution.requires or ()),
        {entry.name: entry.value for entry in distribution.entry_points if entry.group == "console_scripts"},
    )


def requirements_for(extra: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """What ``splatfix[extra]`` requires in ``environment`` (marker variables), without markers and without torch.

    torch is left out because a lane names its one build of it itself.
    """
    chosen = []
    for line in own_metadata().requires:
        requirement = Requirement(line)
        if requirement.name == "torch":
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**environment, "extra": e}) for e in ("", extra)):
            requirement.marker = None
            chosen.append(str(requirement))
    return tuple(sorted(set(chosen)))


def pack_own_wheel(folder: Path) -> Path:
    """Write the running splatfix and its smoke trainer as a wheel into ``folder``; returns its path."""
    metadata = own_metadata()
    wheel = folder / f"splatfix-{metadata.version}-py3-none-any.whl"
    info = f"splatfix-{metadata.version}.dist-info"
    record: list[str] = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(_sources()):
            _put(archive, name, source.read_bytes(), record)
        _put(archive, f"{info}/METADATA", _metadata_file(metadata).encode(), record)
        _put(
            archive,
            f"{info}/WHEEL",
            b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            record,
        )
        scripts = "".join(f"{name} = {target}\n" for name, target in sorted(metadata.scripts.items()))
        _put(archive, f"{info}/entry_points.txt", f"[console_scripts]\n{scripts}".encode(), record)
        record.append(f"{info}/RECORD,,")
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD", _EPOCH), "\n".join(record) + "\n")
    return wheel


def _sources() -> Iterator[tuple[str, Path]]:
    """(name in the wheel, file here), the same layout that a built wheel has."""
    for package in (_PACKAGE, smoke_trainer_folder()):
        for path in package.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                yield f"{package.name}/{path.relative_to(package).as_posix()}", path
    if (_PACKAGE / "_bundled").is_dir():
        return  # an installed wheel: the walk above has met them
    for name in _BUNDLED:
        try:
            found = bundled(name)
        except FileNotFoundError:
            continue  # a checkout may lack one; whoever needs it there says so
        for path in [found] if found.is_file() else sorted(found.rglob("*")):
            if path.is_file():
                inner = path.relative_to(found.parent).as_posix()
                yield f"splatfix/_bundled/{inner}", path


def _metadata_file(metadata: OwnMetadata) -> str:
    extras = {
        str(value)
        for line in metadata.requires
        if (marker := Requirement(line).marker) is not None
        for value in _extras_in(str(marker))
    }
    lines = [
        "Metadata-Version: 2.1",
        "Name: splatfix",
        f"Version: {metadata.version}",
        f"Requires-Python: {metadata.requires_python}",
        *[f"Provides-Extra: {extra}" for extra in sorted(extras)],
        *[f"Requires-Dist: {line}" for line in metadata.requires],
    ]
    return "\n".join(lines) + "\n"


def _extras_in(marker: str) -> list[str]:
    """The names compared with ``extra`` in a marker that packaging has written out."""
    words = marker.replace("(", " ").replace(")", " ").split()
    return [words[i + 2].strip("\"'") for i, word in enumerate(words[:-2]) if word == "extra"]


def _of_extra(line: str, extra: str) -> str:
    requirement = Requirement(line)
    marker = f'extra == "{extra}"'
    own = f"({requirement.marker}) and {marker}" if requirement.marker else marker
    requirement.marker = None
    return f"{requirement} ; {own}"


def _put(archive: zipfile.ZipFile, name: str, data: bytes, record: list[str]) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record.append(f"{name},sha256={digest},{len(data)}")
