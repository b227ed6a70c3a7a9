"""CUDA fat binaries: the SASS, PTX and LTO entries in them, read from headers alone.

Layout (all little-endian), as observed in the output of nvcc 11.8 to 13.2:

    header     u32 magic 0xBA55ED50 | u16 version 1 | u16 header size 16 | u64 bytes of entries that follow
    entry      0x00 u16 kind        0x02 u16 version        0x04 u32 header size (64 to 128 seen)
               0x08 u64 payload     0x10 u32 compressed size (0: raw)
               0x18 u16 minor, u16 major (PTX: ISA version) 0x1c u32 architecture number
               0x28 u64 flags
    next entry = entry + header size + payload; zero bytes may separate fatbins.

Payloads are never touched, so nothing is ever decompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache

from splatfix.binaries._bytes import Reader
from splatfix.binaries.model import BinaryError, EntryKind, Fatbin, FatbinEntry

MAGIC = b"\x50\xed\x55\xba"
ELF_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
PE_SECTIONS = (".nv_fatb", "__nv_rel")
UNNAMED_SECTION = "(no section names)"

_CONTAINER = struct.Struct("<4sHHQ")
# the part of an entry header that is read: up to and including the flags
_ENTRY = struct.Struct("<HHIQIIHHIIIQ")
_KINDS = {1: EntryKind.PTX, 2: EntryKind.SASS, 8: EntryKind.LTO}

_FLAG_DEBUG = 0x2
_COMPRESSED = {0x2000: "lz4", 0x8000: "zstd"}  # by flag
_FLAG_A = 0x100000
_FLAG_F = 0x200000

# Bounds against hostile files. cublasLt, the richest library known, has 2,782 fatbins and 5,737 entries.
MAX_RECORDS = 100_000
_MAX_ARCH = 9_999


@lru_cache(maxsize=1024)
def arch_name(number: int, variant: int = 0) -> str:
    """`sm_90a` from the number and the a/f bits of an entry's flags."""
    if variant & _FLAG_A:
        return f"sm_{number}a"
    if variant & _FLAG_F:
        return f"sm_{number}f"
    return f"sm_{number}"


class Budget:
    """Counts fatbins and entries over a whole file, so that a forged one cannot exhaust memory."""

    def __init__(self, limit: int = MAX_RECORDS) -> None:
        """Allow `limit` records."""
        self.limit = limit
        self.left = limit

    def take(self, offset: int) -> None:
        """Count one record; raises `BinaryError` when there are implausibly many."""
        self.left -= 1
        if self.left < 0:
            raise BinaryError(
                f"more than {self.limit} fat binary records up to offset {offset:#x}: not a real library"
            )


def walk_sections(reader: Reader, sections: Iterable[tuple[str, int, int, int]]) -> tuple[Fatbin, ...]:
    """Every fatbin of a file's sections: (name, offset, bytes of contents, bytes that it takes in the file).

    Raises `BinaryError` where two of them overlap, and as :func:`walk`.
    """
    budget = Budget()
    fatbins: list[Fatbin] = []
    last_end = 0
    for name, offset, size, extent in sorted(sections, key=lambda section: section[1]):
        if offset < last_end:
            raise BinaryError(f"section {name} at offset {offset:#x} overlaps the one before it")
        fatbins += walk(reader, name, offset, size, budget)
        last_end = offset + extent
    return tuple(fatbins)


def walk(reader: Reader, section: str, start: int, size: int, budget: Budget) -> list[Fatbin]:
    """Every fatbin of the region [start, start + size).

    Raises `BinaryError` where anything but a fatbin or zero padding is found, or where a size leads outside.
    """
    reader.require(start, size, f"section {section}")
    end = start + size
    fatbins = []
    offset = reader.skip_zeros(start, end)
    while offset < end:
        budget.take(offset)
        fatbin, after = read_fatbin(reader, section, offset, end, budget)
        fatbins.append(fatbin)
        offset = after
        # fatbins nearly always touch; look for padding only where there is some
        if offset < end and reader.take(offset, 1, "padding") == b"\0":
            offset = reader.skip_zeros(offset, end)
    return fatbins


def read_fatbin(reader: Reader, section: str, offset: int, end: int, budget: Budget) -> tuple[Fatbin, int]:
    """The fatbin at `offset` and the offset behind it; it must not reach past `end`."""
    if offset + _CONTAINER.size > end:
        raise BinaryError(f"{section}: a fat binary header at offset {offset:#x} is cut off")
    magic, version, header, body = reader.unpack(_CONTAINER, offset, "fat binary header")
    if magic != MAGIC:
        raise BinaryError(f"{section}: no fat binary at offset {offset:#x} (found {magic.hex()})")
    if version != 1 or header < _CONTAINER.size:
        raise BinaryError(
            f"{section}: fat binary at offset {offset:#x} has unknown version {version}, header {header}"
        )
    after = offset + header + body
    if after > end:
        raise BinaryError(
            f"{section}: fat binary at offset {offset:#x} claims {body} bytes, more than there are"
        )
    entries, unknown = _read_entries(reader, section, offset + header, after, budget)
    return Fatbin(offset, section, tuple(entries), tuple(unknown)), after


def _read_entries(
    reader: Reader, section: str, offset: int, end: int, budget: Budget
) -> tuple[list[FatbinEntry], list[int]]:
    entries: list[FatbinEntry] = []
    unknown: list[int] = []
    while offset < end:
        budget.take(offset)
        if offset + _ENTRY.size > end:
            raise BinaryError(f"{section}: an entry header at offset {offset:#x} is cut off")
        fields = reader.unpack(_ENTRY, offset, "an entry header")
        kind_number, _, header, payload, _, _, minor, major, arch, _, _, flags = fields
        if header < _ENTRY.size:
            raise BinaryError(f"{section}: entry at offset {offset:#x} has a header of only {header} bytes")
        if offset + header + payload > end:
            raise BinaryError(
                f"{section}: entry at offset {offset:#x} claims {payload} bytes, more than there are"
            )
        kind = _KINDS.get(kind_number)
        if kind is None:
            unknown.append(kind_number)
        else:
            if not 1 <= arch <= _MAX_ARCH:
                raise BinaryError(
                    f"{section}: entry at offset {offset:#x} names the impossible architecture {arch}"
                )
            entries.append(
                FatbinEntry(
                    kind=kind,
                    arch=arch_name(arch, flags & (_FLAG_A | _FLAG_F)),
                    ptx_version=(major, minor) if kind is EntryKind.PTX else None,
                    compressed=next((name for flag, name in _COMPRESSED.items() if flags & flag), None),
                    offset=offset,
                    debug=bool(flags & _FLAG_DEBUG),
                )
            )
        offset += header + payload
    return entries, unknown


def search(reader: Reader, start: int, end: int, budget: Budget) -> list[Fatbin]:
    """Containers of a region that is not known to be a fat binary section: a file without section names.

    The magic number alone also occurs by chance inside compressed code, so that a hit counts only if it is
    8-aligned and all of it reads as a fatbin; the search then goes on behind it.
    """
    fatbins = []
    offset = reader.find(MAGIC, start, end)
    while offset >= 0:
        budget.take(offset)
        after = offset + len(MAGIC)
        if offset % 8 == 0:
            try:
                fatbin, after = read_fatbin(reader, UNNAMED_SECTION, offset, end, budget)
            except BinaryError:
                if budget.left < 0:
                    raise
                # else a chance hit: look on behind it
            else:
                fatbins.append(fatbin)
        offset = reader.find(MAGIC, after, end)
    return fatbins
