"""Damages files the way disks, downloads and attackers do: a seeded stream of mutants of a corpus."""

from __future__ import annotations

import io
import random
import struct
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

from .forge_elf import ElfForge
from .forge_fatbin import LTO, TYPICAL, entry, fatbin_of
from .forge_pe import PeForge

_REAL_LIMIT = 200_000


def corpus() -> dict[str, bytes]:
    """Small files of every kind the reader knows, and a few real extension modules of this Python."""
    fat = ((".text", b"\x90" * 64), ("__nv_relfatbin", fatbin_of(entry(LTO, 90))), (".nv_fatbin", TYPICAL))
    everything = {
        "needed": ("libc10.so", "libcudart.so.12"),
        "soname": "_C.so",
        "runpath": "$ORIGIN:/opt/cuda",
        "imports": ("_ZN2at5emptyEv", "cudaMalloc"),
        "weak": ("__gmon_start__",),
        "exports": tuple(f"symbol{index}" for index in range(12)),
        "wanted": (("libstdc++.so.6", ("GLIBCXX_3.4.32", "CXXABI_1.3")), ("libc.so.6", ("GLIBC_2.34",))),
        "defined": ("V_1", "V_2"),
    }
    library = ElfForge(sections=fat, **everything).build()
    files = {
        "elf64": library,
        "elf64-big-endian": ElfForge(sections=fat, order=">", hash_style="sysv", **everything).build(),
        "elf32": ElfForge(sections=fat, bits=32, hash_style="none", **everything).build(),
        "elf64-unnamed": ElfForge(sections=fat, section_table=False, **everything).build(),
        "cubin": ElfForge(
            machine=190,
            abi_version=8,
            flags=0x6006402,
            dynamic=False,
            sections=((".note.nv.tkinfo", b"ptxas\0-arch sm_100a -m 64 \0"),),
        ).build(),
        "fatbin": TYPICAL,
    }
    tables = (("cudart64_12.dll", ("cudaMalloc", 3, "cudaFree")), ("c10.dll", ("?x@@YAXXZ",)))
    for wide in (True, False):
        files[f"pe{64 if wide else 32}"] = PeForge(
            wide=wide,
            sections=((".nv_fatb", TYPICAL), ("__nv_rel", TYPICAL)),
            imports=tables,
            delayed=("nvcuda.dll",),
            exports=tuple(f"symbol{index}" for index in range(12)),
        ).build()
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", method) as archive:
            archive.writestr("pkg/__init__.py", "x = 1")
            archive.writestr("pkg/_C.so", library)
        files[f"wheel-{method}"] = packed.getvalue()
    modules = Path(sysconfig.get_path("platstdlib"), "lib-dynload")
    small = (path for path in sorted(modules.glob("*.so")) if path.stat().st_size <= _REAL_LIMIT)
    for path, _ in zip(small, range(3), strict=False):
        files[path.name] = path.read_bytes()
    return files


_EXTREMES = (
    0,
    1,
    2,
    7,
    8,
    0x7F,
    0xFF,
    0xFFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def _place(rng: random.Random, size: int) -> int:
    """An offset, mostly near the start or the end, where the headers are."""
    choice = rng.random()
    if choice < 0.4:
        return int(size ** rng.random()) % size
    if choice < 0.6:
        return size - 1 - int(size ** rng.random()) % size
    return rng.randrange(size)


def _flip_bits(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16, 64))):
        data[_place(rng, len(data))] ^= 1 << rng.randrange(8)


def _set_field(rng: random.Random, data: bytearray) -> None:
    """A size, count or offset becomes huge, tiny, the file's size, or its own place."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        width, layout = rng.choice(((2, "<H"), (4, "<I"), (8, "<Q"), (4, ">I"), (8, ">Q")))
        at = _place(rng, len(data)) // width * width
        if at + width > len(data):
            continue
        value = rng.choice((*_EXTREMES, len(data), len(data) - 1, at, at + width, rng.getrandbits(64)))
        struct.pack_into(layout, data, at, value % 2 ** (8 * width))


def _truncate(rng: random.Random, data: bytearray) -> None:
    del data[_place(rng, len(data)) :]


def _copy_block(rng: random.Random, data: bytearray) -> None:
    """One structure lies where another should: wrong kinds, cycles, overlaps."""
    length = min(rng.choice((4, 8, 16, 40, 64, 256)), len(data))
    source, target = rng.randrange(len(data) - length + 1), rng.randrange(len(data) - length + 1)
    data[target : target + length] = data[source : source + length]


def _fill(rng: random.Random, data: bytearray) -> None:
    start = _place(rng, len(data))
    end = min(len(data), start + rng.choice((8, 64, 512, 4096)))
    data[start:end] = bytes([rng.choice((0, 0xFF, 0x50, rng.randrange(256)))]) * (end - start)


def _shift(rng: random.Random, data: bytearray) -> None:
    """Bytes lost or gained in the middle."""
    at = _place(rng, len(data))
    if rng.random() < 0.5:
        del data[at : at + rng.choice((1, 4, 8, 64))]
    else:
        data[at:at] = rng.randbytes(rng.choice((1, 4, 8, 64)))


_WAYS = (_flip_bits, _flip_bits, _set_field, _set_field, _set_field, _truncate, _copy_block, _fill, _shift)


def mutants(files: dict[str, bytes], count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` damaged files, each with a label from which it can be made again."""
    rng = random.Random(seed)
    names = sorted(files)
    for number in range(count):
        name = names[number % len(names)]
        data = bytearray(files[name])
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            if data:
                rng.choice(_WAYS)(rng, data)
        yield f"{name} #{number} of seed {seed}", bytes(data)
