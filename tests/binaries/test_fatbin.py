"""Containers and entries of forged fat binaries."""

import pytest

from splatfix.binaries import fatbin
from splatfix.binaries._bytes import Reader
from splatfix.binaries.model import BinaryError, EntryKind, Fatbin

from .forge_fatbin import LTO, LZ4, SASS, TYPICAL, WINDOWS, A, F, entry, fatbin_of


def walk(data: bytes, limit: int = 1000) -> list[Fatbin]:
    return fatbin.walk(Reader(data), ".nv_fatbin", 0, len(data), fatbin.Budget(limit))


@pytest.mark.parametrize(
    ("flags", "arch"), [(0, "sm_100"), (A, "sm_100a"), (F, "sm_100f"), (A | WINDOWS | LZ4, "sm_100a")]
)
@pytest.mark.parametrize("header", [64, 72, 80, 96, 104, 112, 120, 128])
def test_arch_from_number_and_flags_at_every_header_size(flags: int, arch: str, header: int) -> None:
    (box,) = walk(fatbin_of(entry(SASS, 100, flags=flags, header=header), entry(SASS, 75)))
    assert [one.arch for one in box.entries] == [arch, "sm_75"]


def test_all_fields_of_a_typical_section() -> None:
    first, second, empty = walk(TYPICAL)
    assert [(one.kind, one.arch, one.ptx_version, one.compressed, one.debug) for one in first.entries] == [
        (EntryKind.SASS, "sm_75", None, None, False),
        (EntryKind.SASS, "sm_90a", None, "zstd", False),
        (EntryKind.PTX, "sm_120f", (9, 0), "lz4", False),
    ]
    assert [one.offset for one in first.entries] == [16, 16 + 64 + 24, 16 + 64 + 24 + 72 + 24]
    assert second.entries[0].debug and second.entries[0].arch == "sm_120"
    assert second.offset == len(fatbin_of(*[b"x" * (64 + 72 + 96 + 3 * 24)])) + 24
    assert empty.entries == () and empty.empty and not first.empty


def test_lto_is_an_entry_and_other_kinds_are_kept_apart() -> None:
    (box,) = walk(fatbin_of(entry(LTO, 90, version=(1, 65)), entry(16, 100), entry(SASS, 90)))
    assert [one.kind for one in box.entries] == [EntryKind.LTO, EntryKind.SASS]
    assert box.entries[0].ptx_version is None
    assert box.unknown_kinds == (16,)
    (only_unknown,) = walk(fatbin_of(entry(16, 100)))
    assert only_unknown.entries == () and not only_unknown.empty


def test_zero_padding_is_skipped_wherever_it_stands() -> None:
    one = fatbin_of(entry())
    assert len(walk(bytes(8) + one + bytes(4096) + one + bytes(200_000))) == 2
    assert walk(bytes(100)) == [] == walk(b"")


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\x01" + bytes(40), "no fat binary at offset 0x0"),
        (fatbin_of(entry()) + b"junk" * 8, "no fat binary at offset 0x68"),
        (TYPICAL[:200], "claims 304 bytes, more than there are"),
        (fatbin_of(entry())[:12], "header at offset 0x0 is cut off"),
        (fatbin_of(entry()[:40]), "an entry header at offset 0x10 is cut off"),
        (fatbin_of(entry(header=40)), "has a header of only 40 bytes"),
        (fatbin_of(entry()[:-8]), "entry at offset 0x10 claims 24 bytes"),
        (fatbin_of(entry(arch=0)), "impossible architecture 0"),
        (fatbin_of(entry(arch=2**32 - 1)), "impossible architecture"),
        (b"\x50\xed\x55\xba\x02\x00\x10\x00" + bytes(8), "unknown version 2"),
        (b"\x50\xed\x55\xba\x01\x00\x10\x00" + b"\xff" * 8, "more than there are"),
    ],
)
def test_damage_is_named_with_its_offset(data: bytes, complaint: str) -> None:
    with pytest.raises(BinaryError, match=complaint):
        walk(data)


def test_the_number_of_records_is_bounded() -> None:
    data = fatbin_of() * 50
    assert len(walk(data, limit=50)) == 50
    with pytest.raises(BinaryError, match="more than 49 fat binary records"):
        walk(data, limit=49)


def test_search_takes_whole_aligned_containers_only() -> None:
    one = fatbin_of(entry(SASS, 86))
    chance = b"\x50\xed\x55\xba" + b"\x77" * 12
    data = bytes(16) + chance + one + b"abc" + one + bytes(5) + one
    found = fatbin.search(Reader(data), 0, len(data), fatbin.Budget())
    assert [box.offset for box in found] == [32, 32 + 2 * len(one) + 8]
    assert {box.section for box in found} == {fatbin.UNNAMED_SECTION}


def test_search_ends_on_a_file_full_of_magic_numbers() -> None:
    data = fatbin.MAGIC * 4000
    with pytest.raises(BinaryError, match="more than 100 fat binary records"):
        fatbin.search(Reader(data), 0, len(data), fatbin.Budget(100))
