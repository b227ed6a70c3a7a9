"""PE files (Windows .dll, .pyd, .exe): sections that hold fat binaries, imports and exports.

Structures after Microsoft's "PE Format" specification.
"""

import struct
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from splatfix.binaries import fatbin
from splatfix.binaries._bytes import Reader, decode
from splatfix.binaries.model import BinaryError, Fatbin

MAGIC = b"MZ"
MACHINES = {0x14C: "x86", 0x8664: "x86_64", 0xAA64: "aarch64", 0x1C0: "arm"}

# The signature and the COFF header behind it
_COFF = struct.Struct("<4sHHIIIHH")
_SECTION = struct.Struct("<8sIIII12xI")
_DIRECTORY = struct.Struct("<II")
_IMPORT = struct.Struct("<IIIII")
_DELAY_IMPORT = struct.Struct("<8I")
_EXPORT = struct.Struct("<IIHHIIIIIII")
_U32, _U64, _U16 = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<H")
# Numbers of the data directories
_EXPORTS, _IMPORTS, _DELAY_IMPORTS = 0, 1, 13

_MAX_LIBRARIES = 4_096
_MAX_IMPORTS = 65_536
_MAX_IMPORT_TEXT = 8 << 20
_MAX_EXPORTS = 1 << 20
_NAME_LIMIT = 1 << 14


class PeSection(NamedTuple):
    """One section header."""

    name: bytes
    virtual_size: int
    address: int
    raw_size: int
    raw_offset: int
    flags: int


class Pe:
    """A PE file's headers, read on demand; raises `BinaryError` wherever one leads outside the file."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        dos = reader.take(0, 64, "DOS header")
        start = int(_U32.unpack_from(dos, 0x3C)[0])
        signature, self.machine_number, count, _, _, _, optional_size, _ = reader.unpack(
            _COFF, start, "PE header"
        )
        if dos[:2] != MAGIC or signature != b"PE\0\0":
            raise BinaryError(f"no PE header at offset {start:#x}: a DOS program, or damaged")
        optional = start + _COFF.size
        magic = reader.unpack(_U16, optional, "optional header")[0]
        if magic not in (0x10B, 0x20B):
            raise BinaryError(f"unknown optional header {magic:#x} at offset {optional:#x}")
        self.wide = magic == 0x20B
        directories = optional + (112 if self.wide else 96)
        room = max(0, optional + optional_size - directories) // _DIRECTORY.size
        number = min(reader.unpack(_U32, directories - 4, "number of data directories")[0], room, 16)
        self._directories = list(reader.records(_DIRECTORY, directories, number, "data directories"))
        table = optional + optional_size
        self.sections = [PeSection(*raw) for raw in reader.records(_SECTION, table, count, "section headers")]

    @property
    def machine(self) -> str:
        return MACHINES.get(self.machine_number, f"pe-machine-{self.machine_number:#x}")

    def fatbins(self) -> tuple[Fatbin, ...]:
        sections: list[tuple[str, int, int, int]] = []
        for section in self.sections:
            name = section.name.rstrip(b"\0").decode("latin-1")
            if name in fatbin.PE_SECTIONS and section.raw_size:
                # the raw size is rounded up to the file alignment
                size = min(section.raw_size, section.virtual_size or section.raw_size)
                sections.append((name, section.raw_offset, size, section.raw_size))
        return fatbin.walk_sections(self.reader, sections)

    # -- addresses --------------------------------------------------------------------------------------------

    def offset(self, address: int, part: str) -> int:
        """Where the byte at the relative virtual address `address` lies in the file."""
        for section in self.sections:
            if section.address <= address < section.address + section.raw_size:
                return section.raw_offset + address - section.address
        raise BinaryError(f"{part} at address {address:#x} lies in no section")

    def _name_at(self, address: int, part: str, limit: int = 1024) -> str:
        return decode(self.reader.craw(self.offset(address, part), part, limit))

    def _directory(self, index: int) -> int:
        """Address of a data directory, 0 if the file has none."""
        return self._directories[index][0] if index < len(self._directories) else 0

    # -- imports ----------------------------------------------------------------------------------------------

    def _libraries(self, directory: int, layout: struct.Struct, name_field: int) -> Iterator[tuple[Any, ...]]:
        """The fields of every descriptor of a table of imports."""
        address = self._directory(directory)
        if not address:
            return
        offset = self.offset(address, "the import table")
        for index in range(_MAX_LIBRARIES):
            fields = self.reader.unpack(layout, offset + index * layout.size, "import descriptor")
            if not fields[name_field]:
                return
            yield fields
        raise BinaryError(f"more than {_MAX_LIBRARIES} imported libraries: not a real file")

    def imported_libraries(self) -> tuple[str, ...]:
        """DLLs that must be there for the file to load."""
        return tuple(self._library(fields[3]) for fields in self._libraries(_IMPORTS, _IMPORT, 3))

    def delayed_libraries(self) -> tuple[str, ...]:
        """DLLs that are looked for at the first call."""
        records = self._libraries(_DELAY_IMPORTS, _DELAY_IMPORT, 1)
        # names are relative addresses; absolute ones ended with Visual C++ 6
        return tuple(self._library(fields[1]) for fields in records if fields[0] & 1)

    def _library(self, address: int) -> str:
        return self._name_at(address, "the name of an imported library")

    def imported_symbols(self) -> tuple[str, ...]:
        """Every import by name, in order; imports by number have no name."""
        imported: list[str] = []
        thunk, by_number = (_U64, 1 << 63) if self.wide else (_U32, 1 << 31)
        steps = length = 0
        for lookup, _, _, _, thunks in self._libraries(_IMPORTS, _IMPORT, 3):
            offset = self.offset(lookup or thunks, "an import lookup table")
            while True:
                value = self.reader.unpack(thunk, offset, "imported symbol")[0]
                if not value:
                    break
                if not value & by_number:
                    name = self._name_at(value + 2, "the name of an imported symbol", _NAME_LIMIT)
                    imported.append(name)
                    length += len(name)
                offset += thunk.size
                steps += 1
                if steps > _MAX_IMPORTS or length > _MAX_IMPORT_TEXT:
                    raise BinaryError("implausibly many or long imported symbols: not a real file")
        return tuple(imported)

    # -- exports ----------------------------------------------------------------------------------------------

    @cached_property
    def _export_table(self) -> tuple[int, int, int] | None:
        """(address of the library's own name, number of names, file offset of the name table)."""
        address = self._directory(_EXPORTS)
        if not address:
            return None
        fields = self.reader.unpack(_EXPORT, self.offset(address, "the export table"), "export table")
        name, count, names = fields[4], fields[7], fields[9]
        if count > _MAX_EXPORTS:
            raise BinaryError(f"the export table claims {count} names: not a real file")
        if not count:
            return name, 0, 0
        table = self.offset(names, "the export name table")
        self.reader.require(table, count * _U32.size, "the export name table")
        return name, count, table

    def own_name(self) -> str | None:
        """The name under which the DLL was linked."""
        table = self._export_table
        return self._name_at(table[0], "the library's own name") if table and table[0] else None

    def exports(self, name: str) -> bool:
        """Whether the DLL exports `name`: a binary search, because the name table is sorted."""
        table = self._export_table
        if table is None:
            return False
        _, count, names = table
        searched = name.encode()
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            address = self.reader.unpack(_U32, names + middle * _U32.size, "export name")[0]
            offset = self.offset(address, "an exported name")
            exported = self.reader.craw(offset, "an exported name", _NAME_LIMIT)
            if exported == searched:
                return True
            if exported < searched:
                low = middle + 1
            else:
                high = middle
        return False
