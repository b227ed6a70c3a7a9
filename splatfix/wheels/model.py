"""What is looked for, what was found, and what is said of each candidate."""

from pathlib import Path

from msgspec import Struct

from splatfix.core.errors import Exit, Rejected
from splatfix.model import Considered, PackageSource


class Wanted(Struct, frozen=True):
    """A package that a prebuilt wheel is looked for, and what such a wheel must be."""

    name: str
    """The distribution."""
    version: str = ""
    """The only public version that will do; "" for any."""
    packages: tuple[PackageSource, ...] = ()
    """The Python side of the source that it takes the place of."""
    variant: str = ""
    """The key of the variant that it must be, where there is no source to compare with."""
    source: str = ""
    """What asks for it, as ``install`` takes it: a folder, a name, a key of a variant."""


class Link(Struct, frozen=True):
    """A wheel, as an index lists it."""

    wheel: str
    """Its file name, decoded."""
    address: str
    """URL, or path of a local file."""
    index: str
    page: str
    """Where it is listed: what its folders are called may say what its own name does not."""
    digest: str = ""
    """As the index states it: ``sha256=9f86...``; "" where it does not."""
    yanked: bool = False

    @property
    def requirement(self) -> str:
        """As pip takes it (PEP 508), with the digest that it then compares."""
        address = self.address
        if "://" not in address:
            address = Path(address).absolute().as_uri()
        if self.digest:
            address = f"{address}#{self.digest}"
        return f"{self.wheel.partition('-')[0]} @ {address}"


class Candidate(Struct, frozen=True):
    """A wheel that was looked at."""

    link: Link
    rejected: Rejected | None = None
    """Why not, as a clause (``wrong-torch``, ``wrong-gpu-code``, ``wrong-face``), exit code ``UNDETERMINED`` where that could
    not be determined: the network, or what would have to fit is not known. None for a proven one."""
    evidence: tuple[str, ...] = ()
    """What was read in it, and fits: its name, version and requirements, its face, GPU code, torch's symbols."""
    path: Path | None = None
    """Where it was looked into: what is proven is what is installed."""


class Search(Struct, frozen=True):
    """The answer for one package."""

    name: str
    candidates: tuple[Candidate, ...]
    """The proven one first, then what might do, then the others in the order of the indexes."""
    unanswered: tuple[Considered, ...] = ()
    """Indexes that could not be read."""
    asked: tuple[str, ...] = ()
    """Names of the indexes that were looked through."""

    @property
    def best(self) -> Candidate | None:
        """The proven one."""
        return next((item for item in self.candidates if item.rejected is None), None)

    @property
    def rejected(self) -> tuple[Considered, ...]:
        """Those that are not proven."""
        return tuple(
            Considered(item.link.wheel, item.rejected.what) for item in self.candidates if item.rejected
        )

    @property
    def exit_code(self) -> Exit:
        """``OK`` where one is proven, ``FAILURE`` where everything was read and nothing fits, else ``UNDETERMINED``."""
        if self.best:
            return Exit.OK
        codes = {item.rejected.exit_code for item in self.candidates if item.rejected}
        if self.unanswered or Exit.UNDETERMINED in codes:
            return Exit.UNDETERMINED
        return Exit.FAILURE
