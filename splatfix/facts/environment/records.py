"""What a wheel installed, by the ``RECORD`` that its installer wrote beside it: each file with its digest and size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from splatfix.core.data import dataclass
from splatfix.facts.environment.packages import metadata_folder
from splatfix.facts.model.environment import Distribution
from splatfix.facts.system.live import System

_SHA256 = "sha256="


@dataclass(frozen=True)
class RecordedFile:
    """A line of a RECORD (PEP 376)."""

    path: str
    """Relative to the site-packages folder, with forward slashes."""
    sha256: str
    """In base64 as the RECORD spells it; "" where it has none, or one by another algorithm."""
    size: int | None
    """In bytes; None where it does not say."""


def record_of(system: System, distribution: Distribution) -> str:
    """The text of its RECORD; "" where it has none, as an egg or a package of conda's."""
    return system.read(f"{metadata_folder(distribution)}/RECORD") or ""


def recorded_files(lines: Iterable[str]) -> Iterator[RecordedFile]:
    """The files of lines of a RECORD, those with a comma in their names left out."""
    for line in lines:
        # csv would take ten times as long for the 15,000 lines of torch's
        path, _, rest = line.partition(",")
        digest, _, size = rest.partition(",")
        if not path or path.startswith('"'):
            continue
        sha256 = ""
        if digest.startswith(_SHA256):
            sha256 = digest.removeprefix(_SHA256)
        yield RecordedFile(path, sha256, int(size) if size.isdecimal() else None)
