"""Reads ELF and PE files and the CUDA fat binaries in them: which SASS and PTX a library carries, what it links to."""

from splatfix.binaries.model import Binary, BinaryError, EntryKind, Fatbin, FatbinEntry, arch_order
from splatfix.binaries.paths import NativeFiles, find_binaries, read_files
from splatfix.binaries.reader import held_texts, is_binary, read_binary
from splatfix.binaries.symbols import SymbolNeeds, missing_exports, provided_versions, read_needs
from splatfix.binaries.wheel import read_wheel
