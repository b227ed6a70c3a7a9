"""Refuses wheels that take what is not theirs: another distribution's files, the environment's programs, Python's start."""

import csv
import os
import zipfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError
from splatfix.core.reading import read_bytes, read_text
from splatfix.facts import name_and_version
from splatfix.install.environment import Environment
from splatfix.install.installed import find_installed
from splatfix.install.wheels import WheelFile

_IMPORTED = (".py", ".pyc", ".so", ".pyd")
_Place = tuple[Path, str]
"""A folder, and the name of a file in it, or of a module, whatever its files are called."""


def refuse_takeover(environment: Environment, wheels: Sequence[WheelFile]) -> list[str]:
    """See that what these wheels write is new or their own, and hides no other's module; else ``takes-over`` is raised.

    Returned is a sentence for each ``.pth`` file, which Python obeys at its start.
    """
    sites = [Path(os.path.realpath(site)) for site in environment.sites]
    all_written = {wheel: dict.fromkeys(map(_real, wheel.destinations(environment))) for wheel in wheels}
    # looked for are those alone whose file or module is called as one that the wheels write; "" of a row such as a/..
    parts = [part for written in all_written.values() for path in written for part in path.parts[-3:]]
    stems = {"", "__init__", *(part.partition(".")[0] for part in parts)}
    listed: dict[_Place, str] = {}
    own_names = {canonicalize_name(wheel.name) for wheel in wheels}
    for record in (path for site in sites for path in site.glob("*.dist-info/RECORD")):
        owner, version = name_and_version(record.parent.name)
        site, text = record.parents[1], read_text(record)
        if not isinstance(text, str) or canonicalize_name(owner) in own_names:
            continue
        with suppress(csv.Error):  # of no use to pip either
            for row in csv.reader(text.splitlines()):
                if Path(*row[:1]).name.partition(".")[0] in stems:
                    path = Path(os.path.normpath(site.joinpath(*row[:1])))
                    if os.path.lexists(path):
                        place = _place(_real(path), importable=path.is_relative_to(site))
                        listed[place] = f"{owner} {version}"
    started: list[str] = []
    for wheel, written in all_written.items():
        own = {_real(path) for item in find_installed(environment, wheel.name) for path in item.files}
        members = {_real(path): member for member, path in wheel.placed(environment)}
        folders = {folder for path in written for folder in path.parents}
        # pip would fail in the middle, and a backup of it could not be restored
        blocked = [path for path in written if path in folders or (path.is_dir() and not path.is_symlink())]
        blocked += [folder for folder in folders if folder.exists() and not folder.is_dir()]
        problems = dict.fromkeys(blocked, "that is a file and a folder at once")
        for path in written:
            if path in own:
                continue
            reason = _not_its_own(path, wheel, sites, listed)
            if reason and path in members and not path.is_symlink() and path.is_file():
                with zipfile.ZipFile(wheel.path) as archive:
                    content = archive.read(members[path])
                # several write the same, as of one nvidia/__init__.py
                if read_bytes(path, len(content)) == content:
                    reason = ""
            if reason:
                problems.setdefault(path, reason)
            if path.suffix == ".pth" and path.parent in sites:
                started.append(
                    f"{wheel.name} brings {path}, which every Python of the environment obeys at its start"
                )
        for path, reason in problems.items():
            raise SplatfixError.of("install.takes-over", name=wheel.name, path=path, reason=reason)
    return started


def _not_its_own(path: Path, wheel: WheelFile, sites: Collection[Path], listed: dict[_Place, str]) -> str:
    """Say why a wheel must not write there; "" where it may."""
    in_site = any(path.is_relative_to(site) for site in sites)
    folder, name = _place(path, importable=in_site)
    # a README or LICENSE beside the packages, which several bring
    if path.parent in sites and path.suffix not in (*_IMPORTED, ".pth"):
        return ""
    if (folder, name) in listed:
        return f"{listed[folder, name]} has that place"
    if name == "pyvenv.cfg" or (name in ("sitecustomize", "usercustomize") and folder in sites):
        return "Python obeys it each time that it starts"
    info = path.parent
    if info.parent in sites and info.suffix in (".dist-info", ".egg-info") and info.name != wheel.dist_info:
        return "it describes another distribution"
    if not in_site and any(path.is_relative_to(site.parent) for site in sites):
        return "it would be among Python's own modules"
    if (not in_site or path.suffix == ".pth") and os.path.lexists(path):
        return "no installed package lists what is there"
    return ""


def _real(path: Path) -> Path:
    """Return the path with links on its way followed, and itself not."""
    return Path(os.path.realpath(path.parent)) / path.name


def _place(path: Path, *, importable: bool) -> _Place:
    folder, name = path.parent, path.name
    if importable and path.suffix in _IMPORTED:
        if folder.name == "__pycache__":
            folder = folder.parent
        name = name.partition(".")[0]
        if name == "__init__":
            return folder.parent, folder.name
    return folder, name
