"""What is installed in an environment under one distribution name: every file that belongs to it, whoever put it there."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError
from splatfix.core.step import say
from splatfix.install.target import Target


@dataclass(frozen=True)
class InstalledDistribution:
    """One installed distribution with its files."""

    name: str
    version: str
    info: Path
    """Its dist-info folder, egg-info, or egg-link file."""
    files: tuple[Path, ...]
    """Everything that uninstalling it would remove or change."""

    @property
    def digest(self) -> str:
        """A fingerprint of its RECORD: it changes when anything about the installation does."""
        record = self.info / "RECORD"
        return hashlib.sha256(record.read_bytes()).hexdigest() if record.is_file() else ""


def find_installed(target: Target, name: str) -> tuple[InstalledDistribution, ...]:
    """Every distribution of that name in the environment's own folders (normally none or one).

    Raises:
        SplatfixError: ``cannot-back-up`` for one whose files nobody wrote down (installed by bare distutils).
    """
    wanted = canonicalize_name(name)
    found: list[InstalledDistribution] = []
    for site in target.sites:
        if not site.is_dir():
            continue
        for info in sorted(site.iterdir()):
            stem, _, kind = info.name.rpartition(".")
            project, _, version = stem.partition("-")
            if kind in _READERS and canonicalize_name(project) == wanted:
                version = re.sub(r"-py\d.*$", "", version)
                files = tuple(dict.fromkeys(_READERS[kind](site, info)))
                found.append(InstalledDistribution(project, version, info, files))
    return tuple(found)


def _dist_info(site: Path, info: Path) -> Iterator[Path]:
    record = info / "RECORD"
    if not record.is_file():
        raise _cannot_back_up(info, "it has no RECORD of its files")
    with record.open(encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            if row:
                yield from _with_bytecode((site / row[0]) if not Path(row[0]).is_absolute() else Path(row[0]))
    yield from (path for path in sorted(info.rglob("*")) if path.is_file())


def _egg_link(site: Path, info: Path) -> Iterator[Path]:
    """A development install: the link, and the list of folders that pip edits when it removes it."""
    yield info
    yield site / "easy-install.pth"


def _egg_info(site: Path, info: Path) -> Iterator[Path]:
    listed = info / "installed-files.txt"
    if not listed.is_file():
        raise _cannot_back_up(info, "it was installed by distutils, which keeps no list of files")
    for line in listed.read_text(encoding="utf-8").splitlines():
        yield from _with_bytecode((info / line).resolve())
    yield from (path for path in sorted(info.rglob("*")) if path.is_file())


def _egg(site: Path, info: Path) -> Iterator[Path]:
    yield site / "easy-install.pth"
    yield from (
        (path for path in sorted(info.rglob("*")) if path.is_file()) if info.is_dir() else iter((info,))
    )


_READERS = {"dist-info": _dist_info, "egg-link": _egg_link, "egg-info": _egg_info, "egg": _egg}


def _with_bytecode(path: Path) -> Iterator[Path]:
    path = Path(*path.parts[:1], *_collapse(path.parts[1:]))
    yield path
    yield from bytecode_of(path)


def _collapse(parts: tuple[str, ...]) -> list[str]:
    """``a/../b`` -> ``b`` without following links: RECORD paths are relative to site-packages as written."""
    out: list[str] = []
    for part in parts:
        if part == ".." and out:
            out.pop()
        elif part != ".":
            out.append(part)
    return out


def bytecode_of(path: Path) -> Iterator[Path]:
    """Compiled copies of a module that lie beside it, of any Python version."""
    if path.suffix == ".py":
        yield from sorted((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))


def _cannot_back_up(info: Path, why: str) -> SplatfixError:
    return SplatfixError(
        "cannot-back-up",
        f"{info.name} cannot be replaced safely: {why}.",
        meaning="splatfix replaces nothing that it could not put back; nothing was changed.",
        todo=(say(f"Remove it yourself first, by deleting {info} and its module folder."),),
    )
