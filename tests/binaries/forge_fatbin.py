"""Builds fat binaries byte by byte, independently of the reader."""

import struct

PTX, SASS, LTO = 1, 2, 8
LINUX, WINDOWS, DEBUG, LZ4, ZSTD, A, F = 0x10, 0x40, 0x2, 0x2000, 0x8000, 0x100000, 0x200000


def entry(
    kind: int = SASS,
    arch: int = 90,
    *,
    flags: int = 0,
    payload: bytes = b"\xee" * 24,
    header: int = 64,
    version: tuple[int, int] = (1, 8),
) -> bytes:
    """One entry; `payload` is stored as it stands."""
    major, minor = version
    raw = struct.pack("<HHIQ", kind, 0x0101, header, len(payload))
    raw += struct.pack("<IIHHI", 0, 0x40 if header > 64 else 0, minor, major, arch)
    raw += struct.pack("<IIQQQ", 0, 0, 0x1 | LINUX | flags, 0, 0)
    return raw.ljust(header, b"\xab")[:header] + payload


def fatbin_of(*entries: bytes) -> bytes:
    """One fatbin around entries."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


# Two fatbins as nvcc writes them for two .cu files built for different GPUs, padding between, an empty one behind.
TYPICAL = (
    fatbin_of(
        entry(SASS, 75, header=64),
        entry(SASS, 90, flags=A | ZSTD, header=72),
        entry(PTX, 120, flags=F | LZ4, header=96, version=(9, 0)),
    )
    + bytes(24)
    + fatbin_of(entry(SASS, 120, flags=DEBUG, header=128))
    + fatbin_of()
)
