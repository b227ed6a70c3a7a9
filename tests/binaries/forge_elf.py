"""Builds ELF files byte by byte, independently of the reader: any class and byte order, sections, dynamic linking."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

BASE = 0x400000  # load address, so that addresses and file offsets differ
PROGBITS, STRTAB, DYNAMIC, NOBITS, DYNSYM = 1, 3, 6, 8, 11


class Strings:
    """A string table under construction."""

    def __init__(self) -> None:
        self.data = bytearray(1)

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


def gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) % 2**32
    return value


def sysv_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        top = value & 0xF0000000
        value = (value ^ top >> 24) & ~top
    return value


@dataclass
class ElfForge:
    """What to build; `build()` gives the file's bytes."""

    bits: int = 64
    order: str = "<"
    machine: int = 62
    type: int = 3
    flags: int = 0
    abi_version: int = 0
    sections: Sequence[tuple[str, bytes]] = ()
    nobits: Sequence[tuple[str, int]] = ()
    section_table: bool = True
    dynamic: bool = True
    needed: Sequence[str] = ()
    soname: str | None = None
    rpath: str | None = None
    runpath: str | None = None
    imports: Sequence[str] = ()
    weak: Sequence[str] = ()
    exports: Sequence[str] = ()
    hash_style: str = "gnu"  # "gnu", "sysv" or "none"
    wanted: Sequence[tuple[str, Sequence[str]]] = ()
    defined: Sequence[str] = ()
    _strings: Strings = field(default_factory=Strings)

    def pack(self, layout: str, *values: int) -> bytes:
        """`A` in the layout is an address-sized field."""
        return struct.pack(self.order + layout.replace("A", "Q" if self.bits == 64 else "I"), *values)

    # -- dynamic pieces ---------------------------------------------------------------------------------------

    def _symbols(self) -> tuple[bytes, list[str]]:
        """The symbol table, and the exported names in its order (sorted by bucket for the GNU hash)."""
        exports = list(self.exports)
        if self.hash_style == "gnu":
            exports.sort(key=lambda name: gnu_hash(name) % self._buckets)
        raw = self._symbol("", 0, 0)
        raw += b"".join(self._symbol(name, 1, 0) for name in self.imports)
        raw += b"".join(self._symbol(name, 2, 0) for name in self.weak)
        raw += b"".join(self._symbol(name, 1, 7) for name in exports)
        return raw, exports

    def _symbol(self, name: str, binding: int, section: int) -> bytes:
        at = self._strings.add(name) if name else 0
        info = binding << 4 | 2
        if self.bits == 64:
            return self.pack("IBBHQQ", at, info, 0, section, 0x1000, 8)
        return self.pack("IIIBBH", at, 0x1000, 8, info, 0, section)

    @property
    def _buckets(self) -> int:
        return max(1, len(self.exports) // 2)

    def _gnu_hash(self, exports: list[str]) -> bytes:
        first = 1 + len(self.imports) + len(self.weak)
        if not exports:  # as GNU ld writes it
            return self.pack("IIIIAII", 1, 1, 1, 0, 0, 0, 0)
        bloom = 0
        shift = 5
        for name in exports:
            value = gnu_hash(name)
            bloom |= 1 << value % self.bits | 1 << (value >> shift) % self.bits
        buckets, chains = [0] * self._buckets, []
        for index, name in enumerate(exports):
            place = gnu_hash(name) % self._buckets
            if not buckets[place]:
                buckets[place] = first + index
            last = index + 1 == len(exports) or gnu_hash(exports[index + 1]) % self._buckets != place
            chains.append(gnu_hash(name) & ~1 | int(last))
        raw = self.pack("IIIIA", self._buckets, first, 1, shift, bloom)
        return raw + self.pack(f"{len(buckets)}I{len(chains)}I", *buckets, *chains)

    def sysv_hash(self, exports: Sequence[str]) -> bytes:
        """Every symbol is in it, undefined ones too, as linkers write it."""
        names = [*self.imports, *self.weak, *exports]
        buckets, chains = [0] * self._buckets, [0] * (1 + len(names))
        for index, name in enumerate(names, 1):
            place = sysv_hash(name) % self._buckets
            chains[index], buckets[place] = buckets[place], index
        return self.pack(f"II{len(buckets)}I{len(chains)}I", len(buckets), len(chains), *buckets, *chains)

    def _verneed(self) -> bytes:
        raw = b""
        for left, (library, versions) in zip(range(len(self.wanted) - 1, -1, -1), self.wanted, strict=True):
            step = 16 * (1 + len(versions)) * bool(left)
            raw += self.pack("HHIII", 1, len(versions), self._strings.add(library), 16, step)
            for index, version in enumerate(versions, 1):
                raw += self.pack("IHHII", 0, 0, 2, self._strings.add(version), 16 * (index < len(versions)))
        return raw

    def _verdef(self) -> bytes:
        names = [self.soname or "lib", *self.defined]
        raw = b""
        for index, name in enumerate(names):
            step = 0 if index + 1 == len(names) else 28
            raw += self.pack("HHHHIII", 1, int(index == 0), index + 1, 1, 0, 20, step)
            raw += self.pack("II", self._strings.add(name), 0)
        return raw

    # -- the file ---------------------------------------------------------------------------------------------

    def build(self) -> bytes:
        """The file's bytes."""
        wide = self.bits == 64
        header_size, segment_size, section_size = (64, 56, 64) if wide else (52, 32, 40)
        self._strings = Strings()
        blobs: list[tuple[str, int, bytes]] = [(name, PROGBITS, data) for name, data in self.sections]
        tags: list[tuple[int, int | str]] = []
        if self.dynamic:
            symbols, exports = self._symbols()
            blobs.append((".dynsym", DYNSYM, symbols))
            tags.append((6, ".dynsym"))
            if self.hash_style == "gnu":
                blobs.append((".gnu.hash", PROGBITS, self._gnu_hash(exports)))
                tags.append((0x6FFFFEF5, ".gnu.hash"))
            elif self.hash_style == "sysv":
                blobs.append((".hash", PROGBITS, self.sysv_hash(exports)))
                tags.append((4, ".hash"))
            if self.wanted:
                blobs.append((".gnu.version_r", PROGBITS, self._verneed()))
                tags += [(0x6FFFFFFE, ".gnu.version_r"), (0x6FFFFFFF, len(self.wanted))]
            if self.defined:
                blobs.append((".gnu.version_d", PROGBITS, self._verdef()))
                tags += [(0x6FFFFFFC, ".gnu.version_d"), (0x6FFFFFFD, len(self.defined) + 1)]
            tags += [(1, self._strings.add(name)) for name in self.needed]
            for tag, text in ((14, self.soname), (15, self.rpath), (29, self.runpath)):
                if text is not None:
                    tags.append((tag, self._strings.add(text)))
            blobs.append((".dynstr", STRTAB, bytes(self._strings.data)))
            tags += [(5, ".dynstr"), (10, len(self._strings.data)), (0, 0)]
            blobs.append((".dynamic", DYNAMIC, bytes(len(tags) * self.bits // 4)))
        names = Strings()
        if self.section_table:
            names_at = [names.add(name) for name, *_ in (*blobs, (".shstrtab",), *self.nobits)]
            blobs.append((".shstrtab", STRTAB, bytes(names.data)))

        segments = 2 if self.dynamic else 1
        offset = header_size + segments * segment_size
        offsets: dict[str, int] = {}
        body = b""
        placed = []
        for name, kind, data in blobs:
            body += bytes(-(offset + len(body)) % 8)
            offsets[name] = offset + len(body)
            placed.append((name, kind, offset + len(body), len(data)))
            body += data
        if self.dynamic:
            table = b"".join(
                self.pack("AA", tag, BASE + offsets[value] if isinstance(value, str) else value)
                for tag, value in tags
            )
            at = offsets[".dynamic"] - offset
            body = body[:at] + table + body[at + len(table) :]
        body += bytes(-(offset + len(body)) % 8)
        sections_at = offset + len(body)

        def segment(kind: int, start: int, size: int) -> bytes:
            if wide:
                return self.pack("IIQQQQQQ", kind, 4, start, BASE + start, BASE + start, size, size, 8)
            return self.pack("8I", kind, start, BASE + start, BASE + start, size, size, 4, 8)

        table = segment(1, 0, sections_at)
        if self.dynamic:
            table += segment(2, offsets[".dynamic"], len(tags) * self.bits // 4)
        headers = b""
        count = names_index = 0
        if self.section_table:
            placed += [(name, NOBITS, sections_at, size) for name, size in self.nobits]
            rows = [(name_at, *row[1:]) for name_at, row in zip(names_at, placed, strict=True)]
            for name_at, kind, at, size in [(0, 0, 0, 0), *rows]:
                headers += self.pack("IIAAAAIIAA", name_at, kind, 2, BASE + at, at, size, 0, 0, 8, 0)
            count, names_index = 1 + len(rows), len(blobs)
        ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if self.order == "<" else 2, 1, 0, self.abi_version])
        places = (0, header_size, sections_at if self.section_table else 0)
        sizes = (header_size, segment_size, segments, section_size, count, names_index)
        header = ident.ljust(16, b"\0")
        header += self.pack("HHIAAAIHHHHHH", self.type, self.machine, 1, *places, self.flags, *sizes)
        return header + table + body + headers
