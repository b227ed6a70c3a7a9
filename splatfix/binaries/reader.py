"""One file to one `Binary`: ELF, PE, a bare cubin, a bare fatbin or PTX, told apart by the first bytes."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from splatfix.binaries._bytes import Reader, opened
from splatfix.binaries.elf import MACHINE_CUDA, Elf
from splatfix.binaries.elf import MAGIC as ELF_MAGIC
from splatfix.binaries.fatbin import MAGIC as FATBIN_MAGIC
from splatfix.binaries.fatbin import Budget, arch_name, walk
from splatfix.binaries.model import Binary, BinaryError, EntryKind, Fatbin, FatbinEntry
from splatfix.binaries.pe import MAGIC as PE_MAGIC
from splatfix.binaries.pe import Pe

StrPath = str | os.PathLike[str]

# libfoo.so, libfoo.so.1.2, _C.cpython-311-x86_64-linux-gnu.so, _C.pyd, foo.dll
_NATIVE_NAME = re.compile(r".+\.(so(\.[0-9][\w.]*)?|pyd|dll)", re.IGNORECASE)

SECTION = "(cubin)"
# Comments, the version of the language, the architecture. Source: the PTX ISA, "Directive Statements".
_PTX = re.compile(rb"(?:\s|//[^\n]*\n)*\.version\s+(\d+)\.(\d+)\s+\.target\s+(sm_\d+[af]?)")
_PTX_HEAD = 4096
_TOOLKIT_NOTE = ".note.nv.tkinfo"
_COMMAND_LINE_ARCH = re.compile(rb"(?:^|[\0 ])(?:-arch|--gpu-name)[ =](sm_(\d+)[af]?)(?=[\0 ]|$)")
_NOTE_LIMIT = 1 << 16
# The largest extension modules have some hundred MB; searching more would keep a diagnosis waiting.
_SEARCHED = 2 << 30
_PART = 1 << 20
_PREFIX_VARIANT_A = 0x100000
_ABI7_A = 0x800


def read_binary(path: StrPath) -> Binary:
    """Read one ELF or PE file, bare cubin, bare fatbin or PTX: header-hopping over a memory map, nothing decompressed.

    Raises `BinaryError`.
    """
    name = os.fspath(path)
    with opened(path) as reader:
        return parse(reader, name)


def parse(reader: Reader, path: str) -> Binary:
    """As `read_binary`, from bytes that are already at hand; `path` is only a label."""
    try:
        head = reader.take(0, min(4, reader.size), "the file's first bytes")
        if head == ELF_MAGIC:
            elf = Elf(reader)
            if elf.machine_number == MACHINE_CUDA:
                return Binary(path, "elf", elf.machine, reader.size, (_cubin(elf),))
            return Binary(
                path=path,
                format="elf",
                machine=elf.machine,
                size=reader.size,
                fatbins=elf.fatbins(),
                needed=elf.needed(),
                rpath=elf.rpath(),
                soname=elf.soname(),
            )
        if head[:2] == PE_MAGIC:
            pe = Pe(reader)
            return Binary(
                path=path,
                format="pe",
                machine=pe.machine,
                size=reader.size,
                fatbins=pe.fatbins(),
                needed=pe.imported_libraries(),
                soname=pe.own_name(),
                delay_needed=pe.delayed_libraries(),
            )
        if head == FATBIN_MAGIC:
            boxes = walk(reader, "(fatbin)", 0, reader.size, Budget())
            return Binary(path, "fatbin", "cuda", reader.size, tuple(boxes))
        if ptx := _PTX.match(reader.take(0, min(_PTX_HEAD, reader.size), "the file's first bytes")):
            version = (int(ptx[1]), int(ptx[2]))
            entry = FatbinEntry(EntryKind.PTX, ptx[3].decode(), version, None, 0, False)
            return Binary(path, "ptx", "cuda", reader.size, (Fatbin(0, "(ptx)", (entry,)),))
    except BinaryError as error:
        raise BinaryError(f"{path}: {error}") from error
    # static libraries and macOS's binaries among them: they are named in paths.py, where a person pointed at one
    raise BinaryError(
        f"{path}: neither an ELF nor a PE file nor a CUDA fat binary nor PTX (it starts with {head.hex()!r})"
    )


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


def held_texts(path: StrPath, texts: Iterable[str]) -> tuple[str, ...]:
    """Those of `texts` that the file's bytes hold, each ended by a zero byte as a C string is.

    Raises `BinaryError`, also for a file of more than two GiB, which no extension module has.
    """
    searched = {text: text.encode() + b"\0" for text in texts}
    overlap = max(map(len, searched.values()), default=0)
    held: set[str] = set()
    with opened(path) as reader:
        if reader.size > _SEARCHED:
            raise BinaryError(
                f"{os.fspath(path)}: it has more than {_SEARCHED >> 30} GiB and is not searched"
            )
    try:
        with Path(path).open("rb") as handle:  # not mapped: the whole file would stay in memory
            part = b""
            while len(held) < len(searched):
                following = handle.read(_PART)
                if not following:
                    break
                # a text may lie across the border of two parts
                part = part[-overlap:] + following
                held.update(text for text, raw in searched.items() if raw in part)
    except OSError as error:
        raise BinaryError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from error
    return tuple(text for text in searched if text in held)


def is_native_name(name: str) -> bool:
    """Whether a file of this name should be a native module or a shared library."""
    return _NATIVE_NAME.fullmatch(name) is not None


def _cubin(elf: Elf) -> Fatbin:
    """A fatbin of one entry for a cubin given as a file.

    The architecture number is in `e_flags`: the low byte before ABI 8, the second byte from ABI 8 on (CUDA 13).
    From ABI 8 on the letters of `sm_100a` and `sm_100f` are not in the flags; they are taken from the assembler's
    own command line, which it leaves in a note, and are lost where that note was stripped.
    """
    variant = 0
    if elf.abi_version >= 8:
        number = elf.flags >> 8 & 0xFF
    else:
        number = elf.flags & 0xFF
        if elf.flags & _ABI7_A:
            variant = _PREFIX_VARIANT_A
    if number == 0:
        raise BinaryError(f"the cubin's flags {elf.flags:#x} name no architecture")
    arch = arch_name(number, variant)
    for _, section in elf.named_sections((_TOOLKIT_NOTE,)):
        raw = elf.reader.take(section.offset, min(section.size, _NOTE_LIMIT), "the toolkit note")
        noted = _COMMAND_LINE_ARCH.search(raw)
        if noted:
            if int(noted[2]) == number:
                arch = noted[1].decode("ascii")
            break
    debug = bool(elf.named_sections((".debug_info",)))
    entry = FatbinEntry(EntryKind.SASS, arch, None, None, 0, debug)
    return Fatbin(0, SECTION, (entry,))
