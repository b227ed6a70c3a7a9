"""ELF files: sections that hold fat binaries, and what a shared library links to.

Both classes (32 and 64 bit) and both byte orders are read. Structures after the ELF specification (System V gABI).
"""

import struct
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from splatfix.binaries import fatbin
from splatfix.binaries._bytes import Reader, decode
from splatfix.binaries.model import BinaryError, Fatbin

MAGIC = b"\x7fELF"
MACHINE_CUDA = 190
MACHINES = {
    3: "x86",
    8: "mips",
    20: "ppc",
    21: "ppc64le",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    MACHINE_CUDA: "cuda",
    224: "amdgpu",
    243: "riscv",
    258: "loongarch",
}

PT_LOAD, PT_DYNAMIC = 1, 2
SHT_NOBITS, SHT_DYNSYM = 8, 11
DT_NULL, DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SONAME, DT_RPATH = 0, 1, 4, 5, 6, 10, 14, 15
DT_RUNPATH, DT_GNU_HASH, DT_VERDEF, DT_VERDEFNUM = 29, 0x6FFFFEF5, 0x6FFFFFFC, 0x6FFFFFFD
DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
# The number does not fit the header's field and stands in section 0
_SHN_XINDEX, _PN_XNUM = 0xFFFF, 0xFFFF

# An object file of a huge C++ project with -ffunction-sections has some 10^5 sections.
_MAX_SECTIONS = 500_000
_MAX_NAMED = 4_096
_MAX_SEGMENTS = 4_096
_MAX_DYNAMIC = 16_384
_MAX_NEEDED = 4_096


class ElfSection(NamedTuple):
    """One section header; `offset` and `size` in the file."""

    name_offset: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class Segment(NamedTuple):
    """One program header."""

    type: int
    offset: int
    address: int
    file_size: int


# Header, section, segment, dynamic entry, symbol (name, value, size, info, other, shndx in the order of the class), word and
# address of each class.
_FORMS = {
    32: ("HHIIIIIHHHHHH", "10I", "8I", "iI", "IIIBBH", "I", "I"),
    64: ("HHIQQQIHHHHHH", "IIQQQQIIQQ", "IIQQQQQQ", "qQ", "IBBHQQ", "I", "Q"),
}


class _Layout:
    """The records of one ELF class and byte order."""

    def __init__(self, bits: int, order: str) -> None:
        self.header, self.section, self.segment, self.dynamic, self.symbol, self.word, self.address = (
            struct.Struct(order + form) for form in _FORMS[bits]
        )


_LAYOUTS = {(bits, order): _Layout(bits, order) for bits in (32, 64) for order in "<>"}


class DynamicTable(Struct, frozen=True):
    """DT_* values that occur once, DT_NEEDED's and the place of the string table in the file."""

    values: dict[int, int]
    needed_offsets: tuple[int, ...]
    strings: int
    strings_end: int


class Elf:
    """An ELF file's headers, read on demand.

    Raises `BinaryError` wherever a header leads outside the file or makes no sense.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        ident = reader.take(0, 16, "ELF header")
        bits, order = {1: 32, 2: 64}.get(ident[4]), {1: "<", 2: ">"}.get(ident[5])
        if ident[:4] != MAGIC or bits is None or order is None:
            raise BinaryError(f"not an ELF file of a known class and byte order (header {ident[:6].hex()})")
        self.bits, self.order = bits, order
        self.abi_version = ident[8]
        self.layout = _LAYOUTS[bits, order]
        (
            self.type,
            self.machine_number,
            _,
            _,
            self._segment_table,
            self._section_table,
            self.flags,
            _,
            self._segment_size,
            self._segment_count,
            self._section_size,
            self._section_count,
            self._names_index,
        ) = reader.unpack(self.layout.header, 16, "ELF header")

    @property
    def machine(self) -> str:
        return MACHINES.get(self.machine_number, f"elf-machine-{self.machine_number}")

    # -- sections ---------------------------------------------------------------------------------------------

    @cached_property
    def section_count(self) -> int:
        """Number of section headers; 0 where the table was stripped."""
        if not self._section_table:
            return 0
        count = int(self._section_count)
        if count == 0:  # the real number then stands in the size field of section 0
            count = self._raw_section(0).size
        if count > _MAX_SECTIONS:
            raise BinaryError(f"the ELF header claims {count} sections: not a real file")
        return count

    def _raw_section(self, index: int) -> ElfSection:
        offset = self._section_table + index * self._section_size
        return ElfSection(*self.reader.unpack(self.layout.section, offset, f"section header {index}"))

    def section(self, index: int) -> ElfSection:
        """Section header number `index`."""
        if not 0 <= index < self.section_count:
            raise BinaryError(f"section {index} is referred to, but there are {self.section_count}")
        return self._raw_section(index)

    def sections(self) -> Iterator[ElfSection]:
        count = self.section_count
        if not count:
            return
        self._require_sections()
        for fields in self.reader.records(self.layout.section, self._section_table, count, "section headers"):
            yield ElfSection(*fields)

    def _require_sections(self) -> None:
        # they are decoded as one block, which only fits headers of the size of this class
        size = self.layout.section.size
        if self._section_size != size:
            raise BinaryError(f"section headers of {self._section_size} bytes: the ELF header is damaged")
        self.reader.require(self._section_table, self.section_count * size, "section headers")

    @cached_property
    def _names(self) -> ElfSection | None:
        """The section that holds the section names, if there is one."""
        index = self._names_index
        if not self.section_count:
            return None
        if index == _SHN_XINDEX:  # there are too many for the header's field
            index = self._raw_section(0).link
        if index == 0:
            return None
        return self.section(index)

    def named_sections(self, names: tuple[str, ...]) -> list[tuple[str, ElfSection]]:
        """Sections with contents whose name is among `names`, in file order of their headers."""
        table = self._names
        if table is None:
            return []
        self._require_sections()
        self.reader.require(table.offset, table.size, "the section names")
        by_bytes = {name.encode() + b"\0": name for name in names}
        # a file without GPU code, as most are, has no such name
        end = table.offset + table.size
        if all(self.reader.find(name, table.offset, end) < 0 for name in by_bytes):
            return []
        longest = max(map(len, names)) + 1
        named = []
        for section in self.sections():
            # NOBITS: the contents were moved out (objcopy --only-keep-debug)
            if section.type in (0, SHT_NOBITS) or section.size == 0:
                continue
            if section.name_offset >= table.size:
                raise BinaryError(f"a section's name at {section.name_offset:#x} lies outside the name table")
            start = table.offset + section.name_offset
            raw = self.reader.take(start, min(longest, table.size - section.name_offset), "section name")
            name = by_bytes.get(raw[: raw.find(b"\0") + 1])
            if name is not None:
                named.append((name, section))
                if len(named) > _MAX_NAMED:
                    raise BinaryError(f"more than {_MAX_NAMED} sections called {name}: not a real file")
        return named

    # -- device code ------------------------------------------------------------------------------------------

    def fatbins(self) -> tuple[Fatbin, ...]:
        """The fat binaries of the file; a file without section names is searched for them."""
        if self._names is None:
            # what the loader maps, merged where it touches
            ranges: list[tuple[int, int]] = []
            for segment in sorted(self.segments, key=lambda one: one.offset):
                if segment.type != PT_LOAD or not segment.file_size:
                    continue
                start, end = segment.offset, min(segment.offset + segment.file_size, self.reader.size)
                # overlapping segments would have a fatbin read twice
                if ranges and start <= ranges[-1][1]:
                    ranges[-1] = (ranges[-1][0], max(end, ranges[-1][1]))
                else:
                    ranges.append((start, end))
            budget = fatbin.Budget()
            fatbins: list[Fatbin] = []
            for start, end in ranges:
                fatbins += fatbin.search(self.reader, start, end, budget)
            return tuple(fatbins)
        named = self.named_sections(fatbin.ELF_SECTIONS)
        return fatbin.walk_sections(
            self.reader, [(name, section.offset, section.size, section.size) for name, section in named]
        )

    # -- dynamic linking --------------------------------------------------------------------------------------

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The program headers; none in an object file."""
        count = self._segment_count
        if not self._segment_table or not count:
            return ()
        if count == _PN_XNUM:
            count = self._raw_section(0).info
        if count > _MAX_SEGMENTS or self._segment_size != self.layout.segment.size:
            raise BinaryError(
                f"{count} program headers of {self._segment_size} bytes: the ELF header is damaged"
            )
        raw = self.reader.records(self.layout.segment, self._segment_table, count, "program headers")
        if self.bits == 64:
            return tuple(
                Segment(kind, offset, address, size) for kind, _, offset, address, _, size, _, _ in raw
            )
        return tuple(Segment(kind, offset, address, size) for kind, offset, address, _, size, _, _, _ in raw)

    def file_offset(self, address: int, part: str) -> int:
        """Where the byte that is loaded at `address` lies in the file."""
        for segment in self.segments:
            if segment.type == PT_LOAD and segment.address <= address < segment.address + segment.file_size:
                return segment.offset + address - segment.address
        raise BinaryError(f"{part} at address {address:#x} lies in no loaded segment")

    @cached_property
    def dynamic(self) -> DynamicTable | None:
        """The dynamic table, or None for a file that has none (static, object, debug-only)."""
        segment = next((one for one in self.segments if one.type == PT_DYNAMIC), None)
        if segment is None or not segment.file_size:
            return None
        count = min(segment.file_size // self.layout.dynamic.size, _MAX_DYNAMIC)
        values: dict[int, int] = {}
        needed: list[int] = []
        for tag, value in self.reader.records(self.layout.dynamic, segment.offset, count, "dynamic table"):
            if tag == DT_NULL:
                break
            if tag == DT_NEEDED:
                needed.append(value)
            else:
                values.setdefault(tag, value)
        if len(needed) > _MAX_NEEDED:
            raise BinaryError(f"the dynamic table needs {len(needed)} libraries: not a real file")
        if DT_STRTAB not in values:
            if needed:
                raise BinaryError("the dynamic table names libraries but has no string table")
            return DynamicTable(values, (), 0, 0)
        strings = self.file_offset(values[DT_STRTAB], "the dynamic string table")
        end = strings + values.get(DT_STRSZ, 0)
        self.reader.require(strings, end - strings, "the dynamic string table")
        return DynamicTable(values, tuple(needed), strings, end)

    def dynamic_raw(self, table: DynamicTable, index: int, part: str, limit: int = 4096) -> bytes:
        """A string of the dynamic string table, undecoded."""
        return self.reader.craw(table.strings + index, part, limit, table.strings_end)

    def dynamic_string(self, table: DynamicTable, index: int, part: str) -> str:
        return decode(self.dynamic_raw(table, index, part))

    def needed(self) -> tuple[str, ...]:
        table = self.dynamic
        if table is None:
            return ()
        return tuple(
            self.dynamic_string(table, at, "the name of a needed library") for at in table.needed_offsets
        )

    def soname(self) -> str | None:
        """DT_SONAME."""
        table = self.dynamic
        if table is None or DT_SONAME not in table.values:
            return None
        return self.dynamic_string(table, table.values[DT_SONAME], "the library's own name")

    def rpath(self) -> tuple[str, ...]:
        """Folders of DT_RUNPATH, else of DT_RPATH (the loader ignores the latter beside the former)."""
        table = self.dynamic
        if table is None:
            return ()
        at = table.values.get(DT_RUNPATH, table.values.get(DT_RPATH))
        if at is None:
            return ()
        # long: build systems stack up many folders
        text = decode(self.dynamic_raw(table, at, "the library search path", 1 << 16))
        return tuple(part for part in text.split(":") if part)
