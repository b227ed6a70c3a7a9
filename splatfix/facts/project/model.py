"""What a project declares to be installed, file by file, as data."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cached_property

from splatfix.core.data import dataclass, field
from splatfix.facts.model.source import Source


class Manager(str, Enum):
    """Who installs from a file."""

    UV = "uv"
    PIP = "pip"
    """pip, or uv pip: requirements.txt, and a pyproject.toml that names no other."""
    POETRY = "Poetry"
    PIXI = "pixi"
    CONDA = "conda"


@dataclass(frozen=True)
class Dependency:
    """One requirement, as its file has it."""

    name: str
    """Normalised (PEP 503); conda's ``pytorch`` is torch."""
    specifier: str
    """As PEP 440 has it, ``>=2.0,<3``; "" for any version."""
    line: int
    marker: str = ""
    """As PEP 508 has it, ``sys_platform == 'linux'``; "" for always."""
    address: str = ""
    """``git+https://...``, the address of a wheel or a folder; "" for an index."""
    folder: str = ""
    """Of ``address``, relative to the project, where it is one that is here."""
    index: str = ""
    """The only index that it is taken from; "" for those of the file."""
    extra: str = ""
    """The extra or group with which that index is taken."""
    conda: bool = False
    """A package of conda's."""
    cuda: str = ""
    """Conda's: the CUDA that its build was made for, ``12.4``; ``cpu`` for none; "" where the file does not say."""


@dataclass(frozen=True)
class Locked:
    """One package of a lock file."""

    name: str
    version: str
    index: str = ""
    wheels: tuple[str, ...] = ()
    """File names."""
    sdist: bool = False
    marker: str = ""
    """For which of the resolutions; "" for all."""


@dataclass(frozen=True)
class BuildSettings:
    """What uv's tables say of the build of one package."""

    torch: bool = False
    """Its isolated build gets a torch: from ``extra-build-dependencies``."""
    match_runtime: bool = False
    """And that is the one that the project itself runs with."""
    isolated: bool = True
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)
    metadata: bool = False
    """``dependency-metadata`` has a version for it."""


@dataclass(frozen=True)
class Manifest:
    """One file from which an environment is made, with its lock file."""

    file: str
    """Relative to the project."""
    manager: Manager
    dependencies: tuple[Dependency, ...] = ()
    requires_python: str = ""
    """As PEP 440 has it."""
    python: str = ""
    """``3.10``, where one is pinned."""
    pip: str = ""
    """The pip that conda's file pins."""
    indexes: tuple[str, ...] = ()
    """Indexes and link lists besides PyPI, or in its place."""
    replaces_pypi: bool = False
    """One of them is asked in the place of PyPI."""
    builds: Mapping[str, BuildSettings] = field(default_factory=dict, hash=False)
    lock: str = ""
    """The lock file; "" for none, or one that was made of another state of this file."""
    locked: tuple[Locked, ...] = ()
    stale: str = ""
    """The lock file that was made of another state of this file."""
    wrong: tuple[str, ...] = ()
    """What of it could not be read, a clause each."""

    @cached_property
    def locked_by_name(self) -> Mapping[str, tuple[Locked, ...]]:
        rows: dict[str, list[Locked]] = {}
        for row in self.locked:
            rows.setdefault(row.name, []).append(row)
        return {name: tuple(versions) for name, versions in rows.items()}

    def of(self, name: str) -> tuple[Dependency, ...]:
        return tuple(item for item in self.dependencies if item.name == name)


@dataclass(frozen=True)
class Project:
    """A folder with such files."""

    folder: str
    manifests: tuple[Manifest, ...]
    python: str = ""
    """``.python-version``, where it names a CPython."""
    sources: Mapping[str, Source] = field(default_factory=dict, hash=False)
    """The sources of dependencies that lie in the project, by their folder."""
    unversioned: tuple[str, ...] = ()
    """Those whose files name no version, which setuptools then takes to be 0.0.0."""
