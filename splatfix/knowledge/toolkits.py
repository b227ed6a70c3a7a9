"""CUDA toolkits from PyPI wheels, without root: which majors can compile, what to install, and what to mend after."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import Version

from splatfix.knowledge.tables import cached, parse_version, source_of, table


@dataclass(frozen=True)
class Provision:
    """Whether the wheels of a CUDA major make a toolkit that compiles."""

    cuda_major: int
    compiles: bool
    wheel: str
    holds: str
    """What the compiler wheel has, or lacks."""
    source: str


@dataclass(frozen=True)
class Fix:
    """Something that an unpacked toolkit needs after pip: a link to make, or a flag to add."""

    name: str
    platform: str
    needed: bool
    why: str
    path: str
    """Link to make, relative to CUDA_HOME; "" when the fix is no link."""
    links_to: str
    flag: str
    """Compiler flag, with ``{cuda_home}``; "" when the fix is no flag."""


@dataclass(frozen=True)
class Recipe:
    """How to make a CUDA 13 toolkit: ``pip install --target DIR REQUIREMENT``, then the fixes."""

    requirement: str
    cuda_home: str
    """Relative to DIR."""
    unpacked_gb: float
    fixes: tuple[Fix, ...]
    verified: bool
    """A build was done with it (Linux); False on Windows, where none was tried."""
    source: str


@cached
def _fixes() -> tuple[Fix, ...]:
    return tuple(
        Fix(
            name=name,
            platform=row["platform"],
            needed=row["needed"],
            why=row["why"],
            path=row.get("path", ""),
            links_to=row.get("links_to", ""),
            flag=row.get("flag", ""),
        )
        for name, row in table("toolkits")["fixes"].items()
    )


def provision(cuda_major: int) -> Provision | None:
    """What PyPI offers for a CUDA major; None: not known."""
    document = table("toolkits")
    row = document["majors"].get(str(cuda_major))
    if row is None:
        return None
    return Provision(
        cuda_major=cuda_major,
        compiles=row["compiler"],
        wheel=row["wheel"],
        holds=row["holds"],
        source=source_of("toolkits", row),
    )


def provisionable(cuda_major: int) -> bool | None:
    """Whether pip alone brings a compiler of this CUDA major; None: not known."""
    offer = provision(cuda_major)
    if offer is None:
        return None
    return offer.compiles


def recipe(cuda: str, platform: str = "linux") -> Recipe | None:
    """The toolkit wheels for a CUDA version: ``13.0.2`` exactly, ``13.0`` in its newest update; None: there are none.

    Take the version that torch itself depends on (``cuda_of_torch``), so that headers and runtime agree.
    """
    version = parse_version(cuda)
    if not provisionable(version[0]):
        return None
    if len(version) < 3:
        cuda = f"{cuda}.*"
    document = table("toolkits")
    row = document["recipe"]
    # on Windows nobody has built with these wheels yet
    tried = row if platform == "linux" else document["windows"]
    return Recipe(
        requirement=f"{row['meta_package']}[{','.join(row['extras'])}]=={cuda}",
        cuda_home=row["cuda_home"],
        unpacked_gb=row["unpacked_gb"],
        fixes=tuple(fix for fix in _fixes() if fix.platform == platform),
        verified=tried["verified"],
        source=source_of("toolkits", row),
    )


def cuda_of_torch(torch_version: str) -> str | None:
    """The cuda-toolkit version that the plain PyPI wheel of this torch (2.11+) depends on; None: not known."""
    parts = parse_version(torch_version)
    row = table("toolkits")["torch_cuda"].get(".".join(map(str, parts[:2])))
    if row is None:
        return None
    return str(row["cuda"])


def known_digest(name: str, version: Version) -> str:
    """The SHA-256 of that wheel where the table knows it, else ""."""
    row = table("toolkits")["recipe"]
    if canonicalize_name(name) != row["meta_package"]:
        return ""
    digests = row.get("sha256", {}).items()
    return next((str(digest) for text, digest in digests if Version(text) == version), "")
