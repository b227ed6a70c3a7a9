"""CUDA toolkits from PyPI wheels, without root: which majors can compile, what to install, and what to mend after."""

from msgspec import Struct
from packaging.utils import canonicalize_name
from packaging.version import Version

from splatfix.knowledge.rows import decode, row_of, rows
from splatfix.knowledge.tables import parse_version, source_of, table


class Provision(Struct, frozen=True):
    """Whether the wheels of a CUDA major make a toolkit that compiles."""

    compiler: bool
    wheel: str
    holds: str
    """What the compiler wheel has, or lacks."""


class ToolkitFix(Struct, frozen=True):
    """Something that an unpacked toolkit needs after pip: a link to make, or a flag to add."""

    platform: str
    needed: bool
    why: str
    path: str = ""
    """Link to make, relative to CUDA_HOME; "" when the fix is no link."""
    links_to: str = ""
    flag: str = ""
    """Compiler flag, with ``{cuda_home}``; "" when the fix is no flag."""


class WheelToolkit(Struct, frozen=True):
    """How to make a CUDA 13 toolkit: ``pip install --target DIR REQUIREMENT``, then the fixes."""

    requirement: str
    cuda_home: str
    """Relative to DIR."""
    unpacked_gb: float
    fixes: tuple[ToolkitFix, ...]
    verified: bool
    """A build was done with it (Linux); False on Windows, where none was tried."""
    source: str


def provision(cuda_major: int) -> Provision | None:
    """What PyPI offers for a CUDA major; None: not known."""
    return row_of(Provision, "toolkits", "majors", str(cuda_major))


def recipe(cuda: str, platform: str = "linux") -> WheelToolkit | None:
    """The toolkit wheels for a CUDA version: ``13.0.2`` exactly, ``13.0`` in its newest update; None: there are none.

    Take the version that torch itself depends on (``cuda_of_torch``), so that headers and runtime agree.
    """
    version = parse_version(cuda)
    offer = provision(version[0])
    if offer is None or not offer.compiler:
        return None
    if len(version) < 3:
        cuda = f"{cuda}.*"
    document = table("toolkits")
    row = document["recipe"]
    verified = row["verified"]
    # on Windows nobody has built with these wheels yet
    if platform != "linux":
        verified = document["windows"]["verified"]
    fixes = rows(ToolkitFix, "toolkits", "fixes").values()
    return decode(
        WheelToolkit,
        row,
        requirement=f"{row['meta_package']}[{','.join(row['extras'])}]=={cuda}",
        fixes=tuple(fix for fix in fixes if fix.platform == platform),
        verified=verified,
        source=source_of("toolkits", row),
    )


def cuda_of_torch(torch_version: str) -> str | None:
    """The cuda-toolkit version that the plain PyPI wheel of this torch (2.11+) depends on; None: not known."""
    minor = ".".join(map(str, parse_version(torch_version)[:2]))
    row = table("toolkits")["torch_cuda"].get(minor)
    return None if row is None else str(row["cuda"])


def known_digest(name: str, version: Version) -> str:
    """The SHA-256 of that wheel where the table knows it, else ""."""
    row = table("toolkits")["recipe"]
    if canonicalize_name(name) != row["meta_package"]:
        return ""
    digests = row.get("sha256", {}).items()
    return next((str(digest) for text, digest in digests if Version(text) == version), "")
