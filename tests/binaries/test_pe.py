"""PE headers, device code, imports and exports of forged files."""

import struct

import pytest

from splatfix.binaries._bytes import Reader
from splatfix.binaries.model import Binary, BinaryError
from splatfix.binaries.reader import parse
from splatfix.binaries.symbols import parse_exported, parse_needs, parse_provided

from .forge_fatbin import PTX, SASS, TYPICAL, WINDOWS, entry, fatbin_of
from .forge_pe import PeForge

IMPORTS = (("cudart64_12.dll", ("cudaMalloc", 17, "cudaFree")), ("c10.dll", ("?lazy@c10@@YAXXZ",)))


def read(data: bytes) -> Binary:
    return parse(Reader(data), "_C.pyd")


@pytest.mark.parametrize("wide", [True, False])
def test_links(wide: bool) -> None:
    forge = PeForge(wide=wide, imports=IMPORTS, delayed=("nvcuda.dll",), exports=("PyInit__C",))
    binary = read(forge.build())
    assert binary.format == "pe" and binary.machine == "x86_64"
    assert binary.needed == ("cudart64_12.dll", "c10.dll")
    assert binary.delay_needed == ("nvcuda.dll",)
    assert binary.soname == "forged.dll"
    assert binary.rpath == ()


def test_device_code_with_gaps_between_fatbins() -> None:
    one = fatbin_of(entry(SASS, 89, flags=WINDOWS), entry(PTX, 90, flags=WINDOWS, version=(8, 4)))
    sections = ((".nv_fatb", TYPICAL), ("__nv_rel", one + bytes(16) + one), (".nvFatBi", b"x"))
    binary = read(PeForge(sections=sections).build())
    found = [(box.section, len(box.entries), box.relocatable) for box in binary.fatbins]
    typical = [(".nv_fatb", count, False) for count in (3, 1, 0)]
    assert found == [*typical, *[("__nv_rel", 2, True)] * 2]
    assert binary.fatbins[3].entries[1].ptx_version == (8, 4)


@pytest.mark.parametrize("wide", [True, False])
def test_symbols(wide: bool) -> None:
    exports = tuple(f"symbol_{index}" for index in range(0, 2000, 2))
    reader = Reader(PeForge(wide=wide, imports=IMPORTS, exports=exports).build())
    assert parse_needs(reader).imported == ("cudaMalloc", "cudaFree", "?lazy@c10@@YAXXZ")
    assert parse_needs(reader).versions == () == parse_provided(reader)
    asked = [f"symbol_{index}" for index in range(2000)]
    assert parse_exported(reader, asked) == set(exports)


def test_a_file_without_tables() -> None:
    binary = read(PeForge().build())
    assert binary.needed == () and binary.soname is None and binary.delay_needed == ()
    assert parse_exported(Reader(PeForge().build()), ["anything"]) == set()


@pytest.mark.parametrize(
    ("offset", "value", "complaint"),
    [
        (0x3C, 2**31, "reaches past the end"),
        (0x3C, 8, "no PE header at offset 0x8"),
        (64 + 24, 0x777, "unknown optional header"),
        (64 + 24 + 112 + 8, 0xFFFF0000, "the import table at address 0xffff0000 lies in no section"),
    ],
)
def test_damaged_headers(offset: int, value: int, complaint: str) -> None:
    data = bytearray(PeForge(imports=IMPORTS, sections=((".nv_fatb", TYPICAL),)).build())
    struct.pack_into("<I", data, offset, value)
    with pytest.raises(BinaryError, match=complaint):
        read(bytes(data))


def test_overlapping_sections_are_refused() -> None:
    data = bytearray(PeForge(sections=((".nv_fatb", TYPICAL), ("__nv_rel", TYPICAL))).build())
    table = 64 + 24 + 112 + 128 + 40
    data[table + 40 + 20 : table + 40 + 24] = data[table + 20 : table + 24]
    with pytest.raises(BinaryError, match="overlaps the one before it"):
        read(bytes(data))


def test_padding_behind_a_section_is_not_part_of_it() -> None:
    data = PeForge(sections=((".nv_fatb", TYPICAL),)).build()
    end = data.index(TYPICAL) + len(TYPICAL)
    assert end < len(data)
    binary = read(data[:end] + b"\xcc" * (len(data) - end))
    assert [len(box.entries) for box in binary.fatbins] == [3, 1, 0]
