"""Damages files the way disks, downloads and attackers do: seeded streams of mutants of a corpus."""

import random
import struct
from collections.abc import Iterator

_EXTREMES = (
    *(0, 1, 2, 7, 8, 0x7F, 0xFF, 0xFFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1),
    *(2**63, 2**64 - 1),
)


def _place(rng: random.Random, size: int) -> int:
    """An offset, mostly near the start or the end, where the headers are."""
    choice = rng.random()
    if choice < 0.4:
        return int(size ** rng.random()) % size
    if choice < 0.6:
        return size - 1 - int(size ** rng.random()) % size
    return rng.randrange(size)


def _flip_bits(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16, 64))):
        data[_place(rng, len(data))] ^= 1 << rng.randrange(8)


def _set_field(rng: random.Random, data: bytearray) -> None:
    """A size, count or offset becomes huge, tiny, the file's size, or its own place."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        width, layout = rng.choice(((2, "<H"), (4, "<I"), (8, "<Q"), (4, ">I"), (8, ">Q")))
        at = _place(rng, len(data)) // width * width
        if at + width > len(data):
            continue
        value = rng.choice((*_EXTREMES, len(data), len(data) - 1, at, at + width, rng.getrandbits(64)))
        struct.pack_into(layout, data, at, value % 2 ** (8 * width))


def _truncate(rng: random.Random, data: bytearray) -> None:
    del data[_place(rng, len(data)) :]


def _copy_block(rng: random.Random, data: bytearray) -> None:
    """One structure lies where another should: wrong kinds, cycles, overlaps."""
    length = min(rng.choice((4, 8, 16, 40, 64, 256)), len(data))
    source, target = rng.randrange(len(data) - length + 1), rng.randrange(len(data) - length + 1)
    data[target : target + length] = data[source : source + length]


def _fill(rng: random.Random, data: bytearray) -> None:
    start = _place(rng, len(data))
    end = min(len(data), start + rng.choice((8, 64, 512, 4096)))
    data[start:end] = bytes([rng.choice((0, 0xFF, 0x50, rng.randrange(256)))]) * (end - start)


def _shift(rng: random.Random, data: bytearray) -> None:
    """Bytes lost or gained in the middle."""
    at = _place(rng, len(data))
    if rng.random() < 0.5:
        del data[at : at + rng.choice((1, 4, 8, 64))]
    else:
        data[at:at] = rng.randbytes(rng.choice((1, 4, 8, 64)))


_WAYS = (_flip_bits, _flip_bits, _set_field, _set_field, _set_field, _truncate, _copy_block, _fill, _shift)

# What parsers of text stumble over: other digits, other line ends, control characters, numbers too large, deep nesting.
TOKENS: tuple[bytes, ...] = (
    *(b"\0", b"\x1b]0;t\x07", b"\xff\xfe", b"\xed\xb3\xbf", b"\r", b"\r\n", b"\n\n", b"\t", b" ", b"\x85"),
    *(sign.encode() for sign in "\u2028²٣\u202e\ufeffİ"),
    *(b"-", b"-1", b"0", b"1e999", b"nan", b"NaN", b"inf", b"1" * 5000, b"0x", b"1_000", b"true"),
    *(b"null", b"None"),
    *(b'"', b"'", b'"""', b"\\", b"#", b";", b":", b",", b"=", b"[[", b"]]", b"{}", b"()"),
    *(b"%(x)s", b"${x}", b"@", b"**"),
    *(b"[" * 3000, b"(" * 3000, b"{" * 300, b"-" * 20_000, b"a." * 5000, b"x" * 100_000),
    *(b"https://[x/", b"../" * 40),
)


def _insert_token(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    end = at + rng.choice((0, 0, 1, 4, 16))
    data[at:end] = rng.choice(TOKENS)


def _lines(rng: random.Random, data: bytearray) -> None:
    """A line lost, doubled, moved, or repeated very often."""
    lines = bytes(data).splitlines(keepends=True) or [b""]
    at = rng.randrange(len(lines))
    line = lines.pop(at)
    most = 2 + (1 << 20) // (len(line) + 1)  # a document may be a single line
    times = min(rng.choice((0, 0, 2, 2, 500)), most)
    to = rng.randrange(len(lines) + 1)
    data[:] = b"".join([*lines[:to], *[line] * times, *lines[to:]])


_TEXT_WAYS = (_insert_token, _insert_token, _insert_token, _lines, _truncate, _shift, _copy_block, _flip_bits)


def damaged_text(rng: random.Random, text: bytes) -> bytes:
    """A text with one to three kinds of damage."""
    data = bytearray(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if data:
            rng.choice(_TEXT_WAYS)(rng, data)
    return bytes(data)


def mutants(files: dict[str, bytes], count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` damaged binary files, each with a label from which it can be made again."""
    rng = random.Random(seed)
    names = sorted(files)
    for number in range(count):
        name = names[number % len(names)]
        data = bytearray(files[name])
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            if data:
                rng.choice(_WAYS)(rng, data)
        yield f"{name} #{number} of seed {seed}", bytes(data)
