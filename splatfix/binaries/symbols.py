"""Which symbols and GNU symbol versions a library wants, and whether other libraries provide them.

Names are looked up in the GNU hash table as the loader does: asking libtorch_cpu.so for a hundred of its hundred thousand
touches only a few pages. Formats: System V gABI, binutils' DT_GNU_HASH, U. Drepper's "ELF Symbol Versioning".
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from splatfix.binaries._bytes import Reader, decode, opened
from splatfix.binaries.elf import (
    DT_GNU_HASH,
    DT_HASH,
    DT_SYMTAB,
    DT_VERDEF,
    DT_VERDEFNUM,
    DT_VERNEED,
    DT_VERNEEDNUM,
    SHT_DYNSYM,
    DynamicTable,
    Elf,
)
from splatfix.binaries.elf import MAGIC as ELF_MAGIC
from splatfix.binaries.model import BinaryError
from splatfix.binaries.pe import MAGIC as PE_MAGIC
from splatfix.binaries.pe import Pe
from splatfix.core.words import counted

StrPath = str | os.PathLike[str]

# STB_LOCAL and STB_WEAK
_LOCAL, _WEAK = 0, 2
# Mangled names of deep C++ templates run to tens of kilobytes.
_NAME_LIMIT = 1 << 16
# Bounds against forged tables; libtorch_cpu.so has some 10^5 symbols.
_MAX_SYMBOLS = 1_000_000
_MAX_NAME_TEXT = 8 << 20
_MAX_UNDEFINED = 100_000
_SPARE_STEPS = 100_000
_STEPS_PER_NAME = 64
_NEED, _NEED_AUX = "HHIII", "IHHII"
_DEF, _DEF_AUX = "HHHHIII", "II"
_VER_FLG_BASE = 1  # the entry that names the library itself
# libstdc++ defines some 60, and a library wants some 20
_MAX_VERSIONS = 4_096


class SymbolNeeds(Struct, frozen=True):
    """What a library wants from others.

    `imported`: symbols that must be found for it to load (for PE: functions imported by name).
    `weak`: undefined symbols that may stay missing.
    `versions`: pairs such as `("libstdc++.so.6", "GLIBCXX_3.4.32")`; empty for PE, which has none.
    """

    imported: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()


def read_needs(path: StrPath) -> SymbolNeeds:
    """Undefined dynamic symbols and wanted versions of an ELF or PE file; raises `BinaryError`."""
    with _labelled(path) as reader:
        return parse_needs(reader)


def provided_versions(path: StrPath) -> tuple[str, ...]:
    """Versions that a library defines, in its own order: every `GLIBCXX_*` of a libstdc++.so.6, say.

    Empty for a library without versions and for PE. Raises `BinaryError`.
    """
    with _labelled(path) as reader:
        return parse_provided(reader)


def missing_exports(names: Iterable[str], libraries: Sequence[Path]) -> tuple[str, ...]:
    """Those of `names` that none of `libraries` exports, in their order; raises `BinaryError`.

    Symbol versions are not compared.
    """
    left = list(dict.fromkeys(names))
    for library in libraries:
        if not left:
            break
        with _labelled(library) as reader:
            present = parse_exported(reader, left)
        left = [name for name in left if name not in present]
    return tuple(left)


def parse_needs(reader: Reader) -> SymbolNeeds:
    """As `read_needs`, from bytes at hand."""
    if _is_pe(reader):
        return SymbolNeeds(tuple(dict.fromkeys(Pe(reader).imported_symbols())))
    elf = Elf(reader)
    symbols = DynamicSymbols.of(elf)
    if symbols is None:
        return SymbolNeeds()
    strong, weak = symbols.undefined()
    return SymbolNeeds(strong, weak, wanted_versions(elf))


def parse_provided(reader: Reader) -> tuple[str, ...]:
    """As `provided_versions`, from bytes at hand."""
    return () if _is_pe(reader) else defined_versions(Elf(reader))


def parse_exported(reader: Reader, names: Iterable[str]) -> set[str]:
    """Those of `names` that the library exports."""
    if _is_pe(reader):
        pe = Pe(reader)
        return {name for name in names if pe.exports(name)}
    symbols = DynamicSymbols.of(Elf(reader))
    return set() if symbols is None else symbols.defined(names)


def _is_pe(reader: Reader) -> bool:
    head = reader.take(0, min(4, reader.size), "the file's first bytes")
    if head[:2] == PE_MAGIC:
        return True
    if head != ELF_MAGIC:
        raise BinaryError(f"neither an ELF nor a PE file (it starts with {head.hex()!r})")
    return False


@contextmanager
def _labelled(path: StrPath) -> Iterator[Reader]:
    """Open a file and put its name in front of every complaint about its contents."""
    with opened(path) as reader:
        try:
            yield reader
        except BinaryError as error:
            raise BinaryError(f"{os.fspath(path)}: {error}") from error


def gnu_hash(name: bytes) -> int:
    """Hash of DT_GNU_HASH (D. J. Bernstein's, multiplier 33)."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


class DynamicSymbols:
    """Symbols of a file with a dynamic symbol table; raises `BinaryError` for a damaged one."""

    def __init__(self, elf: Elf, table: DynamicTable, symbols: int) -> None:
        """See `of`; `symbols` is the file offset of the symbol table."""
        self.elf, self.reader, self.table, self.start = elf, elf.reader, table, symbols
        self._wide = elf.bits == 64

    @classmethod
    def of(cls, elf: Elf) -> DynamicSymbols | None:
        """The table of `elf`, or None where there is none (an object file, a static program)."""
        table = elf.dynamic
        if table is None or DT_SYMTAB not in table.values:
            return None
        return cls(elf, table, elf.file_offset(table.values[DT_SYMTAB], "the dynamic symbol table"))

    # -- what it wants ----------------------------------------------------------------------------------------

    def undefined(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of undefined symbols: (those that must be found, weak ones)."""
        strong: dict[str, None] = {}
        weak: dict[str, None] = {}
        length = 0
        end = self._count()
        if DT_GNU_HASH in self.table.values:
            buckets, first, blooms, _, behind = self._gnu_header()
            # Hashed symbols are defined ones and stand at the end. An empty table says nothing: linkers then
            # write one empty bucket and a meaningless first index.
            first_bucket = behind + blooms * self.elf.bits // 8
            if buckets > 1 or (buckets == 1 and self._word(first_bucket, "GNU hash bucket") != 0):
                end = min(end, first)
        for name_at, binding, section in self._scan(end):
            if section or binding == _LOCAL or not name_at:
                continue
            name = decode(self.elf.dynamic_raw(self.table, name_at, "a symbol's name", _NAME_LIMIT))
            length += len(name)
            (weak if binding == _WEAK else strong)[name] = None
            if length > _MAX_NAME_TEXT or len(strong) + len(weak) > _MAX_UNDEFINED:
                raise BinaryError("implausibly many or long undefined symbols: not a real library")
        return tuple(strong), tuple(weak)

    def _count(self) -> int:
        """Number of symbols: from the section table, else from DT_HASH, else from where the strings start."""
        tables = (one for one in self.elf.sections() if one.type == SHT_DYNSYM)
        section = next((one for one in tables if one.offset == self.start), None)
        size = self.elf.layout.symbol.size
        if section is not None:
            count = section.size // size
        elif DT_HASH in self.table.values:
            place = self.elf.file_offset(self.table.values[DT_HASH], "the symbol hash table")
            count = self._word(place + 4, "symbol hash table")
        elif self.table.strings > self.start:
            count = (self.table.strings - self.start) // size
        else:
            raise BinaryError(
                "the size of the dynamic symbol table cannot be told: the file lacks its section table"
            )
        if count > _MAX_SYMBOLS:
            raise BinaryError(f"the file claims {counted(count, 'dynamic symbol')}: not a real library")
        return count

    # -- what it has ------------------------------------------------------------------------------------------

    def defined(self, names: Iterable[str]) -> set[str]:
        """Those of `names` that other libraries can link against."""
        searched = {name: name.encode() for name in names}
        if DT_GNU_HASH in self.table.values:
            return self._defined_gnu(searched)
        return self._defined_unhashed(searched)

    def _gnu_header(self) -> tuple[int, int, int, int, int]:
        """(buckets, index of the first hashed symbol, Bloom words, Bloom shift, offset behind the header)."""
        offset = self.elf.file_offset(self.table.values[DT_GNU_HASH], "the GNU hash table")
        buckets, first, blooms, shift = (self._word(offset + 4 * i, "GNU hash table") for i in range(4))
        return buckets, first, blooms, shift, offset + 16

    def _defined_gnu(self, searched: dict[str, bytes]) -> set[str]:
        buckets, first, blooms, shift, bloom_at = self._gnu_header()
        if not buckets:
            return set()
        bits, layout = self.elf.bits, self.elf.layout.address
        buckets_at = bloom_at + blooms * layout.size
        chains_at = buckets_at + 4 * buckets
        defined = set()
        # chains are a few links long, and what they cost in all may not grow with what a forged table says
        steps = _SPARE_STEPS + _STEPS_PER_NAME * len(searched)
        for name, raw in searched.items():
            value = gnu_hash(raw)
            if blooms:
                offset = bloom_at + value // bits % blooms * layout.size
                word = self.reader.unpack(layout, offset, "GNU hash filter")[0]
                if not (word >> value % bits) & (word >> (value >> min(shift, 32)) % bits) & 1:
                    continue
            index = self._word(buckets_at + 4 * (value % buckets), "GNU hash bucket")
            if index < first:  # 0: an empty bucket
                continue
            while True:
                steps -= 1
                if steps < 0:
                    raise BinaryError("the symbol hash table's chains do not end: the file is damaged")
                chain = self._word(chains_at + 4 * (index - first), "GNU hash chain")
                # the lowest bit is no part of the hash: it ends the chain
                if chain | 1 == value | 1 and self._is_definition(index, raw):
                    defined.add(name)
                    break
                if chain & 1:
                    break
                index += 1
        return defined

    def _defined_unhashed(self, searched: dict[str, bytes]) -> set[str]:
        by_raw = {raw: name for name, raw in searched.items()}
        longest = max(map(len, by_raw), default=0)
        defined = set()
        for name_at, binding, section in self._scan(self._count()):
            if section and binding != _LOCAL:
                offset = self.table.strings + name_at
                size = min(longest + 1, self.table.strings_end - offset)
                name = by_raw.get(self.reader.take(offset, size, "a symbol's name").partition(b"\0")[0])
                if name is not None:
                    defined.add(name)
        return defined

    # -- records ----------------------------------------------------------------------------------------------

    def _word(self, offset: int, part: str) -> int:
        return int(self.reader.unpack(self.elf.layout.word, offset, part)[0])

    def _fields(self, raw: tuple[int, ...]) -> tuple[int, int, int]:
        """(offset of the name, binding, section index) of a symbol record."""
        if self._wide:
            return raw[0], raw[1] >> 4, raw[3]
        return raw[0], raw[3] >> 4, raw[5]

    def _scan(self, count: int) -> Iterator[tuple[int, int, int]]:
        for raw in self.reader.records(self.elf.layout.symbol, self.start, count, "the dynamic symbol table"):
            yield self._fields(raw)

    def _is_definition(self, index: int, name: bytes) -> bool:
        layout = self.elf.layout.symbol
        raw = self.reader.unpack(layout, self.start + index * layout.size, "a dynamic symbol")
        name_at, binding, section = self._fields(raw)
        if not section or binding == _LOCAL:
            return False
        offset = self.table.strings + name_at
        if offset + len(name) + 1 > self.table.strings_end:
            return False
        return self.reader.take(offset, len(name) + 1, "a symbol's name") == name + b"\0"


def wanted_versions(elf: Elf) -> tuple[tuple[str, str], ...]:
    """Pairs of (library, version) in file order; none for a file without a dynamic table."""
    table = elf.dynamic
    if table is None or DT_VERNEED not in table.values:
        return ()
    part = "a wanted version"
    first = elf.file_offset(table.values[DT_VERNEED], "the table of wanted versions")
    pairs: list[tuple[str, str]] = []
    for offset, need in _linked(elf, _NEED, first, table.values.get(DT_VERNEEDNUM, 0), part):
        _, count, library_at, aux, _ = need
        library = elf.dynamic_string(table, library_at, "the library of a wanted version")
        for _, version in _linked(elf, _NEED_AUX, offset + aux, count, part):
            pairs.append((library, elf.dynamic_string(table, version[3], "the name of a wanted version")))
            _bounded(len(pairs))
    return tuple(pairs)


def defined_versions(elf: Elf) -> tuple[str, ...]:
    """Names of the versions that a library defines, in file order, without the one that is its own name."""
    table = elf.dynamic
    if table is None or DT_VERDEF not in table.values:
        return ()
    part = "a defined version"
    first = elf.file_offset(table.values[DT_VERDEF], "the table of defined versions")
    names: list[str] = []
    for offset, definition in _linked(elf, _DEF, first, table.values.get(DT_VERDEFNUM, 0), part):
        _, flags, _, count, _, aux, _ = definition
        if count and not flags & _VER_FLG_BASE:
            # the first name is the version's; the others are the versions it follows
            for _, name in _linked(elf, _DEF_AUX, offset + aux, 1, part):
                names.append(elf.dynamic_string(table, name[0], "the name of a defined version"))
    return tuple(names)


def _linked(
    elf: Elf, layout: str, offset: int, count: int, part: str
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """(offset, fields) of each of ``count`` records; the last field leads to the next record, and is 0 in the last one."""
    record = struct.Struct(elf.order + layout)
    for _ in range(_bounded(count)):
        fields = elf.reader.unpack(record, offset, part)
        yield offset, fields
        if not fields[-1]:
            return
        offset += fields[-1]


def _bounded(count: int) -> int:
    if count > _MAX_VERSIONS:
        raise BinaryError(f"the file claims {count} symbol versions: not a real library")
    return count
