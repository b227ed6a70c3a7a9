"""What the binary reader found: plain frozen data, nothing judged, and the reader's one error type."""

from enum import Enum
from typing import Literal

from msgspec import Struct


class BinaryError(Exception):
    """A file that cannot be read as a binary: the message says what is broken and at which offset."""


class EntryKind(str, Enum):
    """What one entry of a fat binary holds."""

    SASS = "sass"
    """Machine code for one architecture (a cubin)."""
    PTX = "ptx"
    """Virtual assembly that the driver compiles for the GPU at hand."""
    LTO = "lto"
    """Link-time-optimisation IR: input of nvlink, never loaded by a driver from an application."""


class FatbinEntry(Struct, frozen=True):
    """One piece of device code inside a fatbin.

    `arch` is always spelled `sm_90a`; `kind` says whether it names a real or a virtual architecture.
    `offset` is that of the entry's header from the start of the file
    (of the member, for a file inside a wheel).
    """

    kind: EntryKind
    arch: str
    ptx_version: tuple[int, int] | None
    compressed: str | None
    offset: int
    debug: bool


class Fatbin(Struct, frozen=True):
    """One fat binary: the device code of one .cu file (or of one device link), for several architectures.

    `entries` may be empty: nvcc writes size-0 fatbins beside PTX-only code, and callers ignore them.
    `unknown_kinds` lists the numeric kind of every entry this reader has no name for; they are not in `entries`.
    """

    offset: int
    section: str
    entries: tuple[FatbinEntry, ...]
    unknown_kinds: tuple[int, ...] = ()

    @property
    def relocatable(self) -> bool:
        """Whether this is `-rdc=true` code: input of a device link.

        nvcc leaves such fatbins in a linked library beside the result of the link in `.nv_fatbin`.
        In an object file they are all there is.
        """
        return self.section.startswith("__nv_rel")

    @property
    def empty(self) -> bool:
        """Whether the fatbin holds nothing at all, not even an entry of unknown kind."""
        return not self.entries and not self.unknown_kinds


class Binary(Struct, frozen=True):
    """One native file: what it is, the device code it carries, and what it links to.

    `format` is "fatbin" for a bare `.fatbin` file and "ptx" for a file of PTX; a bare cubin is an "elf" of machine "cuda".
    `needed` is DT_NEEDED, or the DLLs a PE file imports (`delay_needed`: those it imports on first use).
    `rpath` holds DT_RUNPATH's folders, or DT_RPATH's where there is no DT_RUNPATH, as written (`$ORIGIN` unexpanded).
    """

    path: str
    format: Literal["elf", "pe", "fatbin", "ptx"]
    machine: str
    size: int
    fatbins: tuple[Fatbin, ...] = ()
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    soname: str | None = None
    delay_needed: tuple[str, ...] = ()

    @property
    def archs(self) -> tuple[tuple[EntryKind, str], ...]:
        """Every distinct (kind, arch) of the file, SASS before PTX before LTO, each in order of architecture.

        A summary for people. It is *not* enough to judge the file: a GPU must be served by every fatbin.
        """
        distinct = {(entry.kind, entry.arch) for fatbin in self.fatbins for entry in fatbin.entries}
        return tuple(sorted(distinct, key=lambda pair: (_KIND_ORDER[pair[0]], arch_order(pair[1]))))


_KIND_ORDER = {EntryKind.SASS: 0, EntryKind.PTX: 1, EntryKind.LTO: 2}


def arch_order(arch: str) -> tuple[int, str]:
    """Sort key of an `sm_90a` spelling: by number, then plain before `a` before `f`."""
    digits = arch.removeprefix("sm_").rstrip("af")
    return int(digits), arch.removeprefix("sm_" + digits)
