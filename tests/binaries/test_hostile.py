"""Damaged and hostile files: nothing but `BinaryError` escapes, nothing is read past the end, memory stays small."""

import io
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.binaries import BinaryError, missing_exports, read_binary, read_needs, read_wheel
from splatfix.binaries.fatbin import MAX_RECORDS
from tests.hostile.binaries import ASKED, corpus, run

from .forge_elf import ElfForge
from .forge_fatbin import TYPICAL, entry, fatbin_of
from .forge_pe import PeForge

MEMORY_LIMIT = 50 << 20
SECONDS_LIMIT = 60.0  # a guard against hanging; some seconds are usual for the largest, under tracemalloc


def test_three_thousand_mutants() -> None:
    seen = run(corpus(), 3_000, seed=1)
    # both ways out must be travelled, or the mutants are too tame or too wild to show anything
    assert seen["refused"] > 1_500 and seen["answered"] > 1_500, seen


# -- files made to exhaust memory or time -------------------------------------------------------------------------


def half_a_million_sections() -> bytes:
    data = bytearray(ElfForge(dynamic=False, sections=((".nv_fatbin", TYPICAL),)).build())
    at = struct.unpack_from("<Q", data, 40)[0]
    count = 499_999
    names = struct.unpack_from("<H", data, 62)[0]
    struct.pack_into("<Q", data, at + 32, count)  # section 0 holds the real count
    struct.pack_into("<H", data, 60, 0)
    struct.pack_into("<H", data, 62, names)
    row = bytes(data[at + 64 : at + 128])  # every one of them a .nv_fatbin of the same bytes
    return bytes(data) + row * count


def long_symbols() -> bytes:
    """Fifty thousand imports that share one name of 60 kB."""
    forge = ElfForge(imports=["s"] * 50_000, runpath="s" * 60_000)
    data = bytearray(forge.build())
    table = data.index(b"\0s\0s\0") + 1
    long_name = data.index(b"s" * 60_000) - table + 1
    symbols = data.index(forge.pack("IBBHQQ", 1, 0x12, 0, 0, 0x1000, 8))
    for index in range(50_000):
        struct.pack_into("<I", data, symbols + 24 * index, long_name + index % 1000)
    return bytes(data)


QUICK: dict[str, Callable[[], bytes]] = {
    "sea of zeros": lambda: ElfForge(sections=((".nv_fatbin", bytes(32 << 20)),)).build(),
    "half a million sections": half_a_million_sections,
    "long needed names": lambda: ElfForge(needed=["n" * 4_000] * 4_000).build(),
    "long symbols": long_symbols,
    "versions": lambda: ElfForge(wanted=[("l" * 4_000, ["v" * 4_000])] * 4_000).build(),
    # descriptors that all point at one another's names, and never end
    "circular imports": lambda: PeForge(imports=[("x.dll", ["f"])] * 4_200).build(),
}
MAGIC = b"\x50\xed\x55\xba\1\0\x10\0" * 300_000
LONG: dict[str, Callable[[], bytes]] = {
    "fatbins without end": lambda: fatbin_of() * 200_000,
    # distinct architectures defeat sharing of their names
    "fatbin of as many entries as allowed": lambda: fatbin_of(
        *(entry(arch=1 + index % 9_999, payload=b"") for index in range(MAX_RECORDS - 1))
    ),
    "fatbins as many as allowed": lambda: fatbin_of() * MAX_RECORDS,
    "only magic numbers": lambda: ElfForge(section_table=False, sections=((".x", MAGIC),)).build(),
    "long imports": lambda: PeForge(imports=[("x.dll", ["f" * 16_000] * 10_000)]).build(),
}


@pytest.mark.parametrize("bomb", [*QUICK, *(pytest.param(bomb, marks=pytest.mark.slow) for bomb in LONG)])
def test_bombs_cost_little_memory_and_time(tmp_path: Path, bomb: str) -> None:
    path = tmp_path / "bomb.so"
    path.write_bytes((QUICK | LONG)[bomb]())
    calls: list[Callable[[], object]] = [lambda: read_binary(path)]
    if not bomb.startswith("fatbin"):
        calls += [lambda: read_needs(path), lambda: missing_exports(ASKED, [path])]
    for call in calls:
        begun = time.monotonic()
        tracemalloc.start()
        try:
            call()
        except BinaryError:
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < MEMORY_LIMIT, f"{peak / 2**20:.0f} MiB"
        assert time.monotonic() - begun < SECONDS_LIMIT


def test_a_wheel_of_a_great_many_names(tmp_path: Path) -> None:
    """Its directory repeats one small record; nothing is kept of members that are not libraries."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.py", b"x")
    data = packed.getvalue()
    at, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    record = data[at:end]
    count = 30_000
    directory = record * count
    sizes = (44, 45, 45, 0, 0, count, count, len(directory), at)
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", *sizes)
    end64 += struct.pack("<4sIQI", b"PK\x06\x07", 0, at + len(directory), 1)
    path = tmp_path / "a.whl"
    path.write_bytes(data[:at] + directory + end64 + data[end:])
    tracemalloc.start()
    try:
        assert read_wheel(path) == ()
        assert tracemalloc.get_traced_memory()[1] < MEMORY_LIMIT // 2
    finally:
        tracemalloc.stop()
