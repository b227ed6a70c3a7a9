"""Damaged ELF, PE, fat binary and wheel files: nothing but `BinaryError` escapes, and nothing is read past the end."""

import io
import sysconfig
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from splatfix.binaries import BinaryError
from splatfix.binaries._bytes import Reader
from splatfix.binaries.elf import MAGIC as ELF_MAGIC
from splatfix.binaries.pe import MAGIC as PE_MAGIC
from splatfix.binaries.reader import parse
from splatfix.binaries.symbols import parse_exported, parse_needs, parse_provided
from splatfix.binaries.wheel import read_wheel
from tests.binaries.forge_elf import ElfForge
from tests.binaries.forge_fatbin import LTO, TYPICAL, entry, fatbin_of
from tests.binaries.forge_pe import PeForge

from .mutate import mutants

ASKED = ("symbol3", "PyInit__C", "malloc", "absent")
TOOL = (".note.nv.tkinfo", b"ptxas\0-arch sm_100a -m 64 \0")
_REAL_LIMIT = 200_000


def corpus() -> dict[str, bytes]:
    """Small files of every kind the reader knows, and a few real extension modules of this Python."""
    fat = ((".text", b"\x90" * 64), ("__nv_relfatbin", fatbin_of(entry(LTO, 90))), (".nv_fatbin", TYPICAL))
    everything: dict[str, Any] = {
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
            machine=190, abi_version=8, flags=0x6006402, dynamic=False, sections=(TOOL,)
        ).build(),
        "fatbin": TYPICAL,
    }
    dll = PeForge(sections=((".nv_fatb", TYPICAL), ("__nv_rel", TYPICAL)), exports=everything["exports"])
    dll.imports = (("cudart64_12.dll", ("cudaMalloc", 3, "cudaFree")), ("c10.dll", ("?x@@YAXXZ",)))
    dll.delayed = ("nvcuda.dll",)
    files |= {"pe64": dll.build(), "pe32": replace(dll, wide=False).build()}
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


def outcome(call: Callable[[Reader], object], data: bytes) -> object:
    """What a call answers or complains about."""
    try:
        return call(Reader(data))
    except BinaryError as error:
        assert str(error)
        return str(error)


def calls_for(data: bytes) -> list[Callable[[Reader], object]]:
    """Everything the reader can be asked about a file that starts like this one."""
    calls: list[Callable[[Reader], object]] = [lambda reader: parse(reader, "x")]
    if data.startswith((ELF_MAGIC, PE_MAGIC)):
        calls += [parse_needs, parse_provided, lambda reader: parse_exported(reader, ASKED)]
    if data.startswith(b"PK"):
        calls.append(_read_wheel)
    return calls


def _read_wheel(reader: Reader) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.whl")
        path.write_bytes(reader.take(0, reader.size, "all"))
        return read_wheel(path, on_error=lambda *_: None)


def run(files: dict[str, bytes], count: int, seed: int) -> Counter[str]:
    """Feed mutants to every call; returns how many calls answered and how many refused."""
    seen: Counter[str] = Counter()
    for label, data in mutants(files, count, seed):
        for call in calls_for(data):
            try:
                answer = outcome(call, data)
            except BaseException as error:
                raise AssertionError(f"{label}: {type(error).__name__} escaped: {error}") from error
            seen["refused" if isinstance(answer, str) else "answered"] += 1
    return seen
