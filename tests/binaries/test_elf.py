"""ELF headers, sections and dynamic tables of forged files."""

import struct

import pytest

from splatfix.binaries._bytes import Reader
from splatfix.binaries.model import Binary, BinaryError
from splatfix.binaries.reader import parse
from tests.tables import data

from .forge_elf import ElfForge
from .forge_fatbin import SASS, TYPICAL, entry, fatbin_of

WIDTHS = pytest.mark.parametrize(("bits", "order"), [(64, "<"), (64, ">"), (32, "<"), (32, ">")])


def read(content: bytes) -> Binary:
    return parse(Reader(content), "lib.so")


@WIDTHS
def test_links_of_every_class_and_byte_order(bits: int, order: str) -> None:
    forge = ElfForge(bits=bits, order=order, needed=("libcudart.so.12", "libc.so.6"), soname="lib_C.so")
    forge.runpath, forge.rpath = "$ORIGIN/../torch/lib:/opt/cuda/lib64:", "/ignored"
    binary = read(forge.build())
    assert binary.needed == ("libcudart.so.12", "libc.so.6")
    assert binary.soname == "lib_C.so"
    assert binary.rpath == ("$ORIGIN/../torch/lib", "/opt/cuda/lib64")
    assert binary.machine == "x86_64" and binary.format == "elf"


def test_rpath_counts_where_there_is_no_runpath() -> None:
    assert read(ElfForge(rpath="/a:/b").build()).rpath == ("/a", "/b")


@pytest.mark.parametrize(("number", "name"), [(62, "x86_64"), (183, "aarch64"), (9999, "elf-machine-9999")])
def test_machine(number: int, name: str) -> None:
    assert read(ElfForge(machine=number).build()).machine == name


@WIDTHS
def test_device_code_in_both_sections(bits: int, order: str) -> None:
    sections = (
        (".text", b"\x90" * 33),
        ("__nv_relfatbin", fatbin_of(entry(SASS, 90))),
        (".nv_fatbin", TYPICAL),
        (".nv_fatbin_not", b"not a fatbin"),
    )
    content = ElfForge(bits=bits, order=order, sections=sections).build()
    binary = read(content)
    found = [(box.section, len(box.entries), box.relocatable) for box in binary.fatbins]
    typical = [(".nv_fatbin", count, False) for count in (3, 1, 0)]
    assert found == [("__nv_relfatbin", 1, True), *typical]
    archs = " ".join(f"{kind.value}:{arch}" for kind, arch in binary.archs)
    assert archs == "sass:sm_75 sass:sm_90 sass:sm_90a sass:sm_120 ptx:sm_120f"
    for box in binary.fatbins:
        assert content[box.offset : box.offset + 4] == b"\x50\xed\x55\xba"


def test_a_file_without_sections_is_searched() -> None:
    forge = ElfForge(sections=((".nv_fatbin", TYPICAL),), section_table=False, needed=("libc.so.6",))
    binary = read(forge.build())
    assert [len(box.entries) for box in binary.fatbins] == [3, 1, 0]
    assert binary.needed == ("libc.so.6",)


def test_a_debug_file_has_no_device_code() -> None:
    assert read(ElfForge(nobits=((".nv_fatbin", 1 << 40),)).build()).fatbins == ()


def test_an_object_file_links_to_nothing() -> None:
    binary = read(ElfForge(type=1, dynamic=False, sections=((".nv_fatbin", TYPICAL),)).build())
    assert binary.needed == () and binary.soname is None and len(binary.fatbins) == 3


def test_broken_device_code_is_an_error() -> None:
    content = ElfForge(sections=((".nv_fatbin", b"broken!!"),), needed=("libc.so.6",)).build()
    with pytest.raises(BinaryError, match=r"x: \.nv_fatbin: a fat binary header at offset"):
        parse(Reader(content), "x")


def poke(content: bytes, offset: int, layout: str, value: int) -> bytes:
    changed = bytearray(content)
    struct.pack_into(layout, changed, offset, value)
    return bytes(changed)


@pytest.mark.parametrize(("offset", "layout", "value", "complaint"), data(__file__)["damaged"])
def test_damaged_headers(offset: int, layout: str, value: int, complaint: str) -> None:
    content = ElfForge(sections=((".nv_fatbin", TYPICAL),), needed=("libc.so.6",)).build()
    with pytest.raises(BinaryError, match=complaint):
        read(poke(content, offset, layout, value))


def test_overlapping_sections_are_refused() -> None:
    content = ElfForge(dynamic=False, sections=((".nv_fatbin", TYPICAL), ("__nv_relfatbin", TYPICAL))).build()
    headers = struct.unpack_from("<Q", content, 40)[0]
    first = struct.unpack_from("<Q", content, headers + 64 + 24)[0]
    with pytest.raises(BinaryError, match="overlaps the one before it"):
        read(poke(content, headers + 2 * 64 + 24, "<Q", first))


def test_truncation_is_an_error_or_a_shorter_answer() -> None:
    content = ElfForge(sections=((".nv_fatbin", TYPICAL),), needed=("libc.so.6",)).build()
    # the section table stands at the very end, so that every cut is noticed
    for size in range(len(content)):
        with pytest.raises(BinaryError):
            read(content[:size])


def test_an_absurd_number_of_needed_libraries_is_refused() -> None:
    with pytest.raises(BinaryError, match="needs 5000 libraries"):
        read(ElfForge(needed=["libc.so.6"] * 5_000).build())
