"""One file to one `Binary`: tells the formats apart and gathers what each reader knows."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from splatfix.binaries import cubin
from splatfix.binaries._bytes import Reader, opened
from splatfix.binaries.elf import MACHINE_CUDA, Elf
from splatfix.binaries.elf import MAGIC as ELF_MAGIC
from splatfix.binaries.fatbin import MAGIC as FATBIN_MAGIC
from splatfix.binaries.fatbin import Budget, walk
from splatfix.binaries.model import Binary, BinaryError
from splatfix.binaries.pe import MAGIC as PE_MAGIC
from splatfix.binaries.pe import Pe

StrPath = str | os.PathLike[str]


def read_binary(path: StrPath, *, fatbin: bool = True, links: bool = True) -> Binary:
    """Read one ELF or PE file, bare cubin or bare fatbin: header-hopping over a memory map, nothing decompressed.

    `fatbin=False` leaves the device code unread, `links=False` what the file links to.
    Raises `BinaryError`.
    """
    name = os.fspath(path)
    with opened(path) as reader:
        return parse(reader, name, fatbin=fatbin, links=links)


def parse(reader: Reader, path: str, *, fatbin: bool = True, links: bool = True) -> Binary:
    """As `read_binary`, from bytes that are already at hand; `path` is only a label."""
    try:
        head = reader.take(0, min(4, reader.size), "the file's first bytes")
        if head == ELF_MAGIC:
            return _parse_elf(reader, path, fatbin, links)
        if head[:2] == PE_MAGIC:
            return _parse_pe(reader, path, fatbin, links)
        if head == FATBIN_MAGIC:
            return _parse_fatbin(reader, path, fatbin)
    except BinaryError as error:
        raise BinaryError(f"{path}: {error}") from error
    raise BinaryError(
        f"{path}: neither an ELF nor a PE file nor a CUDA fat binary (it starts with {head.hex()!r})"
    )


def _parse_elf(reader: Reader, path: str, device: bool, links: bool) -> Binary:
    elf = Elf(reader)
    if elf.machine_number == MACHINE_CUDA:
        fatbins = (cubin.fatbin(elf),) if device else ()
        return Binary(path, "elf", elf.machine, reader.size, fatbins)
    return Binary(
        path=path,
        format="elf",
        machine=elf.machine,
        size=reader.size,
        fatbins=elf.fatbins() if device else (),
        needed=elf.needed() if links else (),
        rpath=elf.rpath() if links else (),
        soname=elf.soname() if links else None,
    )


def _parse_pe(reader: Reader, path: str, device: bool, links: bool) -> Binary:
    pe = Pe(reader)
    return Binary(
        path=path,
        format="pe",
        machine=pe.machine,
        size=reader.size,
        fatbins=pe.fatbins() if device else (),
        needed=pe.imported_libraries() if links else (),
        soname=pe.own_name() if links else None,
        delay_needed=pe.delayed_libraries() if links else (),
    )


def _parse_fatbin(reader: Reader, path: str, device: bool) -> Binary:
    found = walk(reader, "(fatbin)", 0, reader.size, Budget()) if device else []
    return Binary(path, "fatbin", "cuda", reader.size, tuple(found))


def is_binary(path: StrPath) -> bool:
    """Whether the file starts like an ELF file, a PE file or a bare fat binary; False for what cannot be opened."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - accepts str
            return False
        with Path(path).open("rb") as handle:
            head = handle.read(64)
            if head[:2] == PE_MAGIC and len(head) == 64:
                handle.seek(int.from_bytes(head[60:64], "little"))
                return handle.read(4) == b"PE\0\0"
    except (OSError, ValueError):
        return False
    return head[:4] in (ELF_MAGIC, FATBIN_MAGIC)
