"""Bare cubins: the ELF file of one SASS entry, without the fat binary header that names its architecture."""

from __future__ import annotations

import re

from splatfix.binaries.elf import Elf
from splatfix.binaries.fatbin import arch_name
from splatfix.binaries.model import BinaryError, EntryKind, Fatbin, FatbinEntry

SECTION = "(cubin)"
_TOOLKIT_NOTE = ".note.nv.tkinfo"
_COMMAND_LINE_ARCH = re.compile(rb"(?:^|[\0 ])(?:-arch|--gpu-name)[ =](sm_(\d+)[af]?)(?=[\0 ]|$)")
_NOTE_LIMIT = 1 << 16
_PREFIX_VARIANT_A = 0x100000
_ABI7_A = 0x800


def fatbin(elf: Elf) -> Fatbin:
    """A fatbin of one entry for a cubin given as a file.

    The architecture number stands in `e_flags`: the low byte before ABI 8, the second byte from ABI 8 on (CUDA 13).
    From ABI 8 on the letters of `sm_100a` and `sm_100f` are not in the flags; they are taken from the assembler's
    own command line, which it leaves in a note, and are lost where that note was stripped.
    """
    if elf.abi_version >= 8:
        number, variant = elf.flags >> 8 & 0xFF, 0
    else:
        number, variant = elf.flags & 0xFF, _PREFIX_VARIANT_A if elf.flags & _ABI7_A else 0
    if number == 0:
        raise BinaryError(f"the cubin's flags {elf.flags:#x} name no architecture")
    arch = arch_name(number, variant)
    noted = _noted_arch(elf)
    if noted is not None and noted[1] == number:
        arch = noted[0]
    debug = bool(elf.named_sections((".debug_info",)))
    entry = FatbinEntry(EntryKind.SASS, arch, None, None, elf.reader.size, 0, debug)
    return Fatbin(0, SECTION, (entry,))


def _noted_arch(elf: Elf) -> tuple[str, int] | None:
    """`("sm_100a", 100)` from the command line in the toolkit note, if it is there."""
    for _, section in elf.named_sections((_TOOLKIT_NOTE,)):
        raw = elf.reader.take(section.offset, min(section.size, _NOTE_LIMIT), "the toolkit note")
        found = _COMMAND_LINE_ARCH.search(raw)
        if found:
            return found[1].decode("ascii"), int(found[2])
    return None
