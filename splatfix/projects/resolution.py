"""Which torch an installation from a file brings: from its lock file, else the newest that its indexes have and it allows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from urllib.parse import unquote

from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from splatfix.core.data import dataclass
from splatfix.core.versions import dotted
from splatfix.facts import Facts
from splatfix.facts.project.model import Dependency, Locked, Manager, Manifest
from splatfix.knowledge.torch_releases import COMPANIONS, TorchBuild, TorchRelease, build, index_url, releases

_TAG = re.compile(r"(?:^|[/_])(cu\d{2,3}|cpu|rocm[\d.]+|xpu)(?:[/_?]|$)")
_SYSTEMS = {
    "linux": ("linux", "Linux", "posix"),
    "windows": ("win32", "Windows", "nt"),
    "darwin": ("darwin", "Darwin", "posix"),
}
FAMILY = ("torch", *COMPANIONS)
"""What comes from torch's index."""
_PYTHONS = tuple(f"3.{minor}" for minor in range(7, 15))


@dataclass(frozen=True)
class Resolved:
    """The torch that a file brings."""

    dependency: Dependency
    version: str = ""
    """Without its local part; "" where that could not be told."""
    tag: str = ""
    """``cu128`` or ``cpu``; "" where that could not be told."""
    why: str = ""
    """How that was told, a clause."""
    obstacle: str = ""
    """Why no index has one that is allowed, a sentence; "" where one has."""

    @property
    def build(self) -> TorchBuild | None:
        """The published build; None for one that the table does not have."""
        return build(self.version, self.tag) if self.version and self.tag else None

    @property
    def words(self) -> str:
        if not self.version:
            return f"torch: {self.why or self.obstacle}"
        return f"torch {self.version}{'+' if self.tag else ''}{self.tag}: {self.why}"


def marker_environment(facts: Facts, python: str) -> dict[str, str]:
    """What PEP 508's markers ask, for the machine and a Python."""
    platform, system, name = _SYSTEMS.get(facts.machine.system, _SYSTEMS["linux"])
    machine = facts.machine.machine or "x86_64"
    return {
        "sys_platform": platform,
        "platform_system": system,
        "os_name": name,
        "platform_machine": machine,
        "python_version": python,
        "python_full_version": f"{python}.20",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }


def holds(marker: str, environment: Mapping[str, str]) -> bool:
    """A marker holds; also one that cannot be read, which its own tool will refuse."""
    try:
        return not marker or Marker(marker).evaluate(dict(environment))
    except (ValueError, RecursionError):
        return True


@lru_cache(maxsize=4096)
def allows(specifier: str, version: str) -> bool:
    """A specifier takes a version; one that cannot be read takes any."""
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except ValueError:
        return True


def pythons(requires: str) -> tuple[str, ...]:
    """The CPythons that ``requires-python`` takes, the oldest first; a patch release that it takes will do."""
    return tuple(name for name in _PYTHONS if any(allows(requires, f"{name}.{patch}") for patch in range(25)))


def oldest_python(requires: str) -> str:
    """The oldest CPython that ``requires-python`` takes, ``3.8``; "" for any."""
    return next(iter(pythons(requires)), "") if requires else ""


def tag_of_index(address: str) -> str:
    """The build whose wheels an index has, by its address; "" where that does not tell."""
    tag = _TAG.search(address)
    return tag[1] if tag else ""


def resolve_torch(manifest: Manifest, facts: Facts, python: str) -> tuple[Resolved, ...]:
    """The torch that a file brings here; several where the person chooses by an extra; () where it names none.

    Args:
        python: of the environment, ``3.11``.
    """
    environment = marker_environment(facts, python)
    named = [item for item in manifest.of("torch") if holds(item.marker, environment)]
    by_extra = [item for item in named if item.extra]
    resolved = []
    for item in by_extra or named[:1]:
        locked = _locked(manifest, item, environment)
        resolved.append(locked or _newest_allowed(manifest, item, facts, python))
    return tuple(resolved)


def _locked(manifest: Manifest, item: Dependency, environment: Mapping[str, str]) -> Resolved | None:
    rows = [row for row in manifest.locked_by_name.get("torch", ()) if holds(row.marker, environment)]
    if item.index:
        rows = [row for row in rows if row.index.rstrip("/") == item.index.rstrip("/")] or rows
    if not rows or item.extra:
        return None
    row = rows[0]
    version, _, local = row.version.partition("+")
    if "=" in row.version:  # conda's: version and build
        version, _, name = row.version.partition("=")
        cuda = re.match(r"cuda(\d)(\d+)", name) or re.search(r"cuda(\d+)\.(\d+)", name)
        local = f"cu{cuda[1]}{cuda[2]}" if cuda else "cpu" if name.startswith("cpu") else ""
    tag = local or tag_of_index(row.index) or _tag_of_pypi(version, environment)
    return Resolved(item, version, tag, f"locked in {manifest.lock}")


def _tag_of_pypi(version: str, environment: Mapping[str, str]) -> str:
    """Which build PyPI's wheel of a release is: for Windows and macOS one for the CPU."""
    if environment["sys_platform"] != "linux":
        return "cpu"
    return next(
        (item.pypi_linux_default for item in releases() if f"{version}.".startswith(f"{item.release}.")), ""
    )


def _newest_allowed(manifest: Manifest, item: Dependency, facts: Facts, python: str) -> Resolved:
    file = re.search(r"torch-(\d[\w.]*)(?:\+(\w+))?-(cp\d+)", unquote(item.address))
    if file:
        version, local, _ = file.groups()
        return Resolved(item, version, local or tag_of_index(item.address), "the wheel that is named")
    if item.address:
        return Resolved(item, why=f"built from {item.address}, of which nothing is known")
    if item.conda:
        return _of_conda(manifest, item)
    local = re.search(r"===?\s*[\d.]+\+(\w+)", item.specifier)
    addresses = [item.index] if item.index else list(manifest.indexes)
    tags = [tag for tag in map(tag_of_index, addresses) if tag]
    if local:
        if not item.index and not addresses:
            what = f"torch{item.specifier} is not on PyPI, and no index is named that has it."
            return Resolved(item, obstacle=what, why="named with its build")
        tags = [local[1]]
    found = [row for tag in tags if (row := _newest(item.specifier, tag, python))]
    if not tags and addresses and any("download.pytorch.org" in address for address in addresses):
        return Resolved(
            item, why="its index has builds of several CUDAs, and which is taken is not told by the file"
        )
    pypi = None
    if not item.index and not manifest.replaces_pypi and not local:
        pypi = _newest_on_pypi(item.specifier, facts, python)
    # uv and Poetry take a package from the first index that has it, pip the newest of all
    if pypi and found and manifest.manager is Manager.PIP and Version(pypi[0]) > Version(found[0][0]):
        found = []
    if found:
        version, tag = found[0]
        return Resolved(item, version, tag, f"the newest of {tag} that is allowed")
    if pypi:
        return Resolved(item, *pypi, "the newest that PyPI has and is allowed")
    wanted = f"torch{item.specifier}"
    if tags:
        return Resolved(
            item, obstacle=f"{index_url(tags[0])} has no {wanted} for Python {python}.", why=f"from {tags[0]}"
        )
    pinned = re.fullmatch(r"===?\s*([\d.]+)", item.specifier)
    if pinned and not any(f"{pinned[1]}.".startswith(f"{row.release}.") for row in releases()):
        return Resolved(item, why=f"{wanted} is in none of the tables")
    return Resolved(
        item,
        obstacle=f"No torch that is known is {wanted} and has wheels for Python {python}.",
        why="from PyPI",
    )


def _of_conda(manifest: Manifest, item: Dependency) -> Resolved:
    if not item.cuda:
        return Resolved(item, why=f"which build {manifest.manager.value} takes is not told by the file")
    if item.cuda == "cpu":
        version = _newest(item.specifier, "cpu", "")
        return Resolved(item, version[0] if version else "", "cpu", "a build for the CPU is named")
    tag = f"cu{item.cuda.replace('.', '')}"
    found = _newest(item.specifier, tag, "")
    if found is None:
        return Resolved(item, why=f"torch{item.specifier} for CUDA {item.cuda} is in none of the tables")
    return Resolved(
        item,
        found[0],
        tag,
        f"as the file names it for CUDA {item.cuda}; read in PyTorch's wheel of that CUDA",
    )


def _versions(release: TorchRelease, row: TorchBuild, specifier: str) -> Iterator[str]:
    """The patch versions of a release that have a build and are allowed, the newest first."""
    known = row.versions or (row.newest or f"{release.release}.0",)
    pinned = re.fullmatch(r"===?\s*([\d.]+\d)(?:\+\w+)?", specifier)
    if pinned and row.versions is None and f"{pinned[1]}.".startswith(f"{release.release}."):
        known = (pinned[1],)
    elif row.versions is None:
        # earlier patches are there too: what asks for less than the newest gets one of them
        newest = int(known[0].rpartition(".")[2])
        known = tuple(f"{release.release}.{patch}" for patch in range(newest + 1))
    for version in reversed(known):
        if allows(specifier, f"{version}+{row.tag}"):
            yield version


def _newest(specifier: str, tag: str, python: str) -> tuple[str, str] | None:
    """(version, tag) of the newest release with that build that is allowed, and has wheels for a Python."""
    for release in reversed(releases()):
        rows: Sequence[TorchBuild] = [row for row in release.builds if row.tag == tag]
        if tag == "cpu" and not rows:
            rows = release.builds[:1]
        if not _takes(release, python):
            continue
        for row in rows:
            version = next(_versions(release, row, specifier), None)
            if version:
                return version, tag
    return None


def _newest_on_pypi(specifier: str, facts: Facts, python: str) -> tuple[str, str] | None:
    for release in reversed(releases()):
        tag = release.pypi_linux_default if facts.machine.system == "linux" else "cpu"
        newest = _newest(f"{specifier},=={release.release}.*".lstrip(","), tag, python)
        if newest:
            return newest
    return None


def _takes(release: TorchRelease, python: str) -> bool:
    if not python:
        return True
    major, minor = map(int, python.split("."))
    return release.supports_python((major, minor)) is not False


def possible_builds(item: Dependency) -> tuple[TorchBuild, ...]:
    """The published builds that a requirement lets in, whichever index is asked; () for one that no index has."""
    if item.address:
        return ()
    rows = [(release, row) for release in releases() for row in release.builds]
    return tuple(row for release, row in rows if next(_versions(release, row, item.specifier), None))


def oldest_python_of(specifier: str, tag: str) -> str:
    """The oldest Python for which an index has a torch that is allowed, ``3.9``; "" where it has none."""
    oldest = [
        release.python_min
        for release in releases()
        for row in release.builds
        if row.tag == tag and next(_versions(release, row, specifier), None)
    ]
    return dotted(min(oldest)) if oldest else ""


def locked_version(manifest: Manifest, name: str, environment: Mapping[str, str]) -> Locked | None:
    """The row of a package in the lock file; None where there is none."""
    rows = [row for row in manifest.locked_by_name.get(name, ()) if holds(row.marker, environment)]
    return rows[0] if rows else None
