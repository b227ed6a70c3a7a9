"""The fat binary format as constants with names: kinds, flags, magics, sections (``splatfix.binaries`` reads by them)."""

from __future__ import annotations

from collections.abc import Mapping

from splatfix.knowledge._tables import table


def kinds() -> Mapping[int, str]:
    """Entry kinds: 1 PTX, 2 cubin, 8 LTO-IR."""
    return {int(number): row["name"] for number, row in table("fatbin")["kinds"].items()}


def flags() -> Mapping[int, str]:
    """Bits of an entry's flag word and what each means."""
    return {int(bit, 16): row["meaning"] for bit, row in table("fatbin")["flags"].items()}


def magics() -> Mapping[str, int]:
    """First word of a ``container`` and of a ``wrapper``, as little-endian u32."""
    return {name: row["value"] for name, row in table("fatbin")["magics"].items()}


def sections(file_format: str) -> tuple[str, ...]:
    """Names of the sections that hold fat binaries in ``elf`` or ``pe`` files."""
    return tuple(name for name, row in table("fatbin")["sections"].items() if row["format"] == file_format)
