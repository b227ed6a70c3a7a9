"""What the check of a signed report folder finds, as data."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from splatfix.core.data import dataclass


class Signed(str, Enum):
    """Whether a certificate is signed, as far as it was checked."""

    UNSIGNED = "unsigned"
    NOT_CHECKED = "not-checked"
    """There is a signature, and no key was given that it holds for."""
    SIGNED = "signed"
    BAD = "bad"


@dataclass(frozen=True)
class Identity:
    """Which certificate it is, and who vouches for it."""

    id: str
    """SHA-256 of its certificate.json, by which a signature names it."""
    signature: Signed = Signed.UNSIGNED
    key: str = ""
    """The id of the key that it holds for; of a signature that was not checked, the one that it names."""
    problem: str = ""
    """Of a bad signature: what is not as it was signed."""


NOT_KNOWN = Identity("")
"""Of a document that was read from no file."""


@dataclass(frozen=True)
class Mismatch:
    """A file that is not as it was signed."""

    file: str
    """Its path below the report folder."""
    problem: str


@dataclass(frozen=True)
class Installed:
    """A file that ran, as an environment has it now."""

    file: str
    """Its path in site-packages."""
    problem: str = ""
    """Empty where it is byte for byte the one that ran."""


@dataclass(frozen=True)
class Verification:
    """What a signed report folder turned out to be."""

    key: str
    """The id of the key it was checked with: SHA-256 of its SubjectPublicKeyInfo."""
    mismatches: tuple[Mismatch, ...]
    files: tuple[str, ...] = ()
    """What was signed; empty where the signature does not hold."""
    statement: Mapping[str, Any] | None = None
    """The signed predicate; None where the signature does not hold, because then anyone may have written it."""
    not_looked_at: tuple[str, ...] = ()
    """Folders of earlier reports."""
    installed: tuple[Installed, ...] = ()
    """What ran beside splatfix's own sources, where an environment was named to compare with."""

    @property
    def holds(self) -> bool:
        """Every file is byte for byte what was signed, and nothing was added."""
        return not self.mismatches
