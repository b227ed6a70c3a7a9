"""GNU symbol versions: which a library wants from which other library, and which it defines.

Format: U. Drepper, "ELF Symbol Versioning" (the records are the same for 32 and 64 bit).
"""

from __future__ import annotations

import struct

from splatfix.binaries.elf import DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM, Elf
from splatfix.binaries.model import BinaryError

_NEED, _NEED_AUX = "HHIII", "IHHII"
_DEF, _DEF_AUX = "HHHHIII", "II"
_VER_FLG_BASE = 1  # the entry that names the library itself
# libstdc++ defines some 60, and a library wants some 20
_MAX_VERSIONS = 4_096


def wanted_versions(elf: Elf) -> tuple[tuple[str, str], ...]:
    """Pairs of (library, version) in file order; none for a file without a dynamic table."""
    table = elf.dynamic
    if table is None or DT_VERNEED not in table.values:
        return ()
    record, aux_record = struct.Struct(elf.order + _NEED), struct.Struct(elf.order + _NEED_AUX)
    offset = elf.file_offset(table.values[DT_VERNEED], "the table of wanted versions")
    found: list[tuple[str, str]] = []
    for _ in range(_bounded(table.values.get(DT_VERNEEDNUM, 0))):
        _, count, library_at, aux, step = elf.reader.unpack(record, offset, "a wanted version")
        library = elf.dynamic_string(table, library_at, "the library of a wanted version")
        here = offset + aux
        for _ in range(count):
            _, _, _, name_at, aux_step = elf.reader.unpack(aux_record, here, "a wanted version")
            found.append((library, elf.dynamic_string(table, name_at, "the name of a wanted version")))
            _bounded(len(found))
            if not aux_step:
                break
            here += aux_step
        if not step:
            break
        offset += step
    return tuple(found)


def defined_versions(elf: Elf) -> tuple[str, ...]:
    """Names of the versions that a library defines, in file order, without the one that is its own name."""
    table = elf.dynamic
    if table is None or DT_VERDEF not in table.values:
        return ()
    record, aux_record = struct.Struct(elf.order + _DEF), struct.Struct(elf.order + _DEF_AUX)
    offset = elf.file_offset(table.values[DT_VERDEF], "the table of defined versions")
    found: list[str] = []
    for _ in range(_bounded(table.values.get(DT_VERDEFNUM, 0))):
        _, flags, _, count, _, aux, step = elf.reader.unpack(record, offset, "a defined version")
        if count and not flags & _VER_FLG_BASE:
            # the first name is the version's; the others are the versions it follows
            name_at, _ = elf.reader.unpack(aux_record, offset + aux, "a defined version")
            found.append(elf.dynamic_string(table, name_at, "the name of a defined version"))
        if not step:
            break
        offset += step
    return tuple(found)


def _bounded(count: int) -> int:
    if count > _MAX_VERSIONS:
        raise BinaryError(f"the file claims {count} symbol versions: not a real library")
    return count
