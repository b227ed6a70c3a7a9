"""Which symbols and symbol versions a library wants, and whether other libraries provide them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from splatfix.binaries._bytes import Reader, opened
from splatfix.binaries.elf import MAGIC as ELF_MAGIC
from splatfix.binaries.elf import Elf
from splatfix.binaries.elf_symbols import DynamicSymbols, defined_versions, wanted_versions
from splatfix.binaries.model import BinaryError
from splatfix.binaries.pe import MAGIC as PE_MAGIC
from splatfix.binaries.pe import Pe

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class SymbolNeeds:
    """What a library wants from others.

    `imported`: symbols that must be found for it to load (for PE: functions imported by name).
    `weak`: undefined symbols that may stay missing.
    `versions`: pairs such as `("libstdc++.so.6", "GLIBCXX_3.4.32")`; empty for PE, which has none.
    """

    imported: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()


def read_needs(path: StrPath) -> SymbolNeeds:
    """Undefined dynamic symbols and wanted versions of an ELF or PE file; raises `BinaryError`."""
    with _labelled(path) as reader:
        return parse_needs(reader)


def provided_versions(path: StrPath) -> tuple[str, ...]:
    """Versions that a library defines, in its own order: every `GLIBCXX_*` of a libstdc++.so.6, say.

    Empty for a library without versions and for PE. Raises `BinaryError`.
    """
    with _labelled(path) as reader:
        return parse_provided(reader)


def missing_exports(names: Iterable[str], libraries: Sequence[Path]) -> tuple[str, ...]:
    """Those of `names` that none of `libraries` exports, in their order; raises `BinaryError`.

    Looks each name up in the libraries' hash tables; symbol versions are not compared.
    """
    left = list(dict.fromkeys(names))
    for library in libraries:
        if not left:
            break
        with _labelled(library) as reader:
            present = parse_exported(reader, left)
        left = [name for name in left if name not in present]
    return tuple(left)


def parse_needs(reader: Reader) -> SymbolNeeds:
    """As `read_needs`, from bytes at hand."""
    if _is_pe(reader):
        return SymbolNeeds(tuple(dict.fromkeys(name for _, name in Pe(reader).imported_symbols())))
    elf = Elf(reader)
    symbols = DynamicSymbols.of(elf)
    if symbols is None:
        return SymbolNeeds()
    strong, weak = symbols.undefined()
    return SymbolNeeds(strong, weak, wanted_versions(elf))


def parse_provided(reader: Reader) -> tuple[str, ...]:
    """As `provided_versions`, from bytes at hand."""
    return () if _is_pe(reader) else defined_versions(Elf(reader))


def parse_exported(reader: Reader, names: Iterable[str]) -> set[str]:
    """Those of `names` that the library exports."""
    if _is_pe(reader):
        pe = Pe(reader)
        return {name for name in names if pe.exports(name)}
    symbols = DynamicSymbols.of(Elf(reader))
    return set() if symbols is None else symbols.defined(names)


def _is_pe(reader: Reader) -> bool:
    head = reader.take(0, min(4, reader.size), "the file's first bytes")
    if head[:2] == PE_MAGIC:
        return True
    if head != ELF_MAGIC:
        raise BinaryError(f"neither an ELF nor a PE file (it starts with {head.hex()!r})")
    return False


@contextmanager
def _labelled(path: StrPath) -> Iterator[Reader]:
    """Open a file and put its name in front of every complaint about its contents."""
    with opened(path) as reader:
        try:
            yield reader
        except BinaryError as error:
            raise BinaryError(f"{os.fspath(path)}: {error}") from error
