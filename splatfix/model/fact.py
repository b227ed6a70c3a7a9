"""One fact: a value with how it was found, or why it is unknown; and the device code of a file as data."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Generic, TypeVar

from msgspec import Meta, Struct

from splatfix.binaries import EntryKind, Fatbin, arch_order

T = TypeVar("T")

# What a stranger's file says goes into comparisons, commands and reports; with a form nothing else can.
_VERSION = r"^[0-9]{1,6}([.][0-9]{1,9}){1,4}([^0-9.\s]\S{0,80})?\Z"
_SM = r"^sm_[0-9]{2,3}[af]?\Z"
_CC = r"^[0-9]{1,2}[.][0-9][af]?\Z"
# What those who compare them may rely on, wherever the facts come from.
Version = Annotated[str, Meta(pattern=_VERSION)]
Sm = Annotated[str, Meta(pattern=_SM)]
Cc = Annotated[str, Meta(pattern=_CC)]


def version_or_none(text: object) -> str | None:
    """Return a version; None for what is none, as a damaged file or an odd program may have it."""
    return text if isinstance(text, str) and re.search(_VERSION, text) else None


class Fact(Struct, Generic[T], frozen=True, forbid_unknown_fields=True):
    """A value with how it was found, or the reason why it is unknown.

    ``value is None`` means unknown, and ``error`` says why; with ``absent`` it is known that there is none (no driver, no
    program of that name). A collection that is known to be empty is an empty tuple.
    """

    value: T | None = None
    found_via: str = ""
    error: str = ""
    absent: bool = False

    @property
    def known(self) -> bool:
        """There is a value to reason with."""
        return self.value is not None


def unknown(error: str, found_via: str = "") -> Fact[Any]:
    """Make a fact that could not be learned, with the reason."""
    return Fact(None, found_via, error)


def absent(error: str, found_via: str) -> Fact[Any]:
    """Make the fact that there is none, as ``found_via`` shows."""
    return Fact(None, found_via, error, absent=True)


class Code(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a fat binary: machine code or PTX for one architecture."""

    kind: EntryKind
    arch: Sm
    """``sm_90a``; the same spelling for PTX, whose kind tells it apart."""
    ptx_version: tuple[int, int] | None = None


class FatbinGroup(Struct, frozen=True, forbid_unknown_fields=True):
    """All fatbins of a file that carry the same entries; big libraries have hundreds."""

    entries: tuple[Code, ...]
    count: int


def group_fatbins(fatbins: Iterable[Fatbin]) -> tuple[FatbinGroup, ...]:
    """Count fatbins with equal entries together, most frequent first; empty fatbins are left out."""
    counts: Counter[tuple[Code, ...]] = Counter()
    for fatbin in loaded_fatbins(fatbins):
        # a number that no GPU has runs nowhere
        codes = {
            Code(item.kind, item.arch, item.ptx_version)
            for item in fatbin.entries
            if re.search(_SM, item.arch)
        }
        # machine code before PTX, then by architecture number
        ordered = sorted(
            codes,
            key=lambda code: (
                code.kind is not EntryKind.SASS,
                arch_order(code.arch),
                code.ptx_version or (0, 0),
            ),
        )
        counts[tuple(ordered)] += 1
    return tuple(FatbinGroup(codes, count) for codes, count in counts.most_common())


def loaded_fatbins(fatbins: Iterable[Fatbin]) -> tuple[Fatbin, ...]:
    """Return the fatbins that a driver loads: not the empty ones, and of a separately compiled file (``-rdc=true``) only the
    device-linked ones. Its relocatable fatbins are link-time input that stays behind in the file; they count only
    where nothing was linked, as in an object file."""
    filled = [fatbin for fatbin in fatbins if fatbin.entries]
    linked = tuple(fatbin for fatbin in filled if not fatbin.relocatable)
    return linked or tuple(filled)
