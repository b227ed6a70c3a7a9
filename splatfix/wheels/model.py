"""What is looked for, what was found, and what is said of each candidate."""

from enum import Enum
from pathlib import Path

from msgspec import Struct

from splatfix.model import PackageSource


class Verdict(str, Enum):
    """What is known of a candidate."""

    PROVEN = "proven"
    """Its name, GPU code, torch's symbols and its face were read, and fit."""
    UNSUITED = "unsuited"
    UNKNOWN = "unknown"
    """It could not be determined: the network, or what would have to fit is not known."""


class Wanted(Struct, frozen=True):
    """A package that a prebuilt wheel is looked for, and what such a wheel must be."""

    name: str
    """The distribution."""
    version: str = ""
    """The only public version that will do; "" for any."""
    packages: tuple[PackageSource, ...] = ()
    """The Python side of the source that it takes the place of."""
    variants: tuple[str, ...] = ()
    """Keys of the variants that will do, where there is no source to compare with."""
    source: str = ""
    """What asks for it, as ``install`` takes it: a folder, a name, a key of a variant."""


class Candidate(Struct, frozen=True):
    """One wheel of an index."""

    wheel: str
    """Its file name."""
    address: str
    """URL, or path of a local file."""
    index: str
    digest: str
    """As the index states it, such as ``sha256=9f86...``; "" where it does not."""
    verdict: Verdict
    code: str = ""
    """Why not, in one word: ``wrong-torch``, ``wrong-gpu-code``, ``wrong-face``; "" for a proven one."""
    reason: str = ""
    evidence: tuple[str, ...] = ()
    """What was read in it, and fits."""
    size: int = 0
    """Bytes that it had when it was looked into."""
    metadata: tuple[str, ...] = ()
    """Its name, version and what it requires, as its METADATA has them."""
    fetched: int = 0
    """Bytes that were asked of the network to judge it."""

    @property
    def requirement(self) -> str:
        """As pip takes it (PEP 508), with the digest that it then compares."""
        address = self.address
        if "://" not in address:
            address = Path(address).absolute().as_uri()
        if self.digest:
            address = f"{address}#{self.digest}"
        return f"{self.wheel.partition('-')[0]} @ {address}"


class Unanswered(Struct, frozen=True):
    """An index that could not be read."""

    index: str
    reason: str


class Search(Struct, frozen=True):
    """The answer for one package."""

    name: str
    candidates: tuple[Candidate, ...]
    """The proven one first, then what might do, then the others in the order of the indexes."""
    unanswered: tuple[Unanswered, ...] = ()
    asked: tuple[str, ...] = ()
    """Names of the indexes that were looked through."""

    @property
    def best(self) -> Candidate | None:
        """The proven one."""
        return next((item for item in self.candidates if item.verdict is Verdict.PROVEN), None)

    @property
    def verdict(self) -> Verdict:
        """Of the whole search: proven, unsuited where everything was read and nothing fits, else unknown."""
        if self.best:
            return Verdict.PROVEN
        if self.unanswered or any(item.verdict is Verdict.UNKNOWN for item in self.candidates):
            return Verdict.UNKNOWN
        return Verdict.UNSUITED
