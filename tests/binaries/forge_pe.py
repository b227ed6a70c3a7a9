"""Builds PE files byte by byte, independently of the reader: sections, imports, delayed imports, exports."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

FILE_ALIGN, PAGE = 0x200, 0x1000


def _aligned(size: int, to: int) -> int:
    return -(-size // to) * to


@dataclass
class PeForge:
    """What to build; `build()` gives the file's bytes."""

    wide: bool = True
    machine: int = 0x8664
    sections: Sequence[tuple[str, bytes]] = ()
    imports: Sequence[tuple[str, Sequence[str | int]]] = ()  # a number is an import by ordinal
    delayed: Sequence[str] = ()
    exports: Sequence[str] = ()
    own_name: str = "forged.dll"

    def _data(self, base: int) -> tuple[bytes, dict[int, int]]:
        """A section with all tables, loaded at `base`, and the address of each data directory."""
        thunk = "<Q" if self.wide else "<I"
        size = struct.calcsize(thunk)
        blob = bytearray(b"\xcc" * 16)
        directories: dict[int, int] = {}

        def put(raw: bytes) -> int:
            blob.extend(bytes(-len(blob) % 8))
            at = len(blob)
            blob.extend(raw)
            return base + at

        if self.imports:
            rows = b""
            for library, symbols in self.imports:
                thunks = b""
                for symbol in symbols:
                    if isinstance(symbol, int):
                        value = symbol | 1 << (8 * size - 1)
                    else:
                        value = put(b"\0\0" + symbol.encode() + b"\0")
                    thunks += struct.pack(thunk, value)
                lookup = put(thunks + bytes(size))
                rows += struct.pack("<IIIII", lookup, 0, 0, put(library.encode() + b"\0"), lookup)
            directories[1] = put(rows + bytes(20))
        if self.delayed:
            rows = b"".join(
                struct.pack("<8I", 1, put(name.encode() + b"\0"), 0, 0, 0, 0, 0, 0) for name in self.delayed
            )
            directories[13] = put(rows + bytes(32))
        if self.exports:
            names = sorted(self.exports, key=str.encode)
            table = put(b"".join(struct.pack("<I", put(name.encode() + b"\0")) for name in names))
            own = put(self.own_name.encode() + b"\0")
            count = len(names)
            directories[0] = put(struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, own, 1, count, count, 0, table, 0))
        return bytes(blob), directories

    def build(self) -> bytes:
        """The file's bytes."""
        data, directories = self._data(PAGE)
        all_sections = [(".rdata", data), *self.sections]
        optional_size = (112 if self.wide else 96) + 16 * 8
        headers_size = _aligned(64 + 24 + optional_size + 40 * len(all_sections), FILE_ALIGN)
        rows, body, address = b"", b"", PAGE
        for name, raw in all_sections:
            padded = raw.ljust(_aligned(len(raw), FILE_ALIGN), b"\0")
            where = (len(raw), address, len(padded), headers_size + len(body), 0x40000040)
            rows += struct.pack("<8sIIII12xI", name.encode(), *where)
            body += padded
            address += _aligned(len(raw), PAGE)
        table = b"".join(struct.pack("<II", directories.get(index, 0), 64) for index in range(16))
        optional = struct.pack("<H", 0x20B if self.wide else 0x10B)
        optional = optional.ljust((112 if self.wide else 96) - 4, b"\0") + struct.pack("<I", 16) + table
        dos = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64)
        kind = (self.machine, len(all_sections), 0, 0, 0, optional_size, 0x2022)
        coff = struct.pack("<4sHHIIIHH", b"PE\0\0", *kind)
        return (dos + coff + optional + rows).ljust(headers_size, b"\0") + body
