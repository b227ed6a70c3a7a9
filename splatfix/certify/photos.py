"""The truth of photos: their files decoded a second time, by nothing that the trainer or its environment has.

PNG of 8 bits by zlib; of JPEG the mean of each block, which is its first coefficient, and of baseline files the energy of the
others (ITU-T T.81; of progressive files the first scan alone is read). Anything else is not judged. What is compared are means
over a grid of cells, which another decoder of JPEG, or another filter of a resize, changes by less than exchanged channels, a
turn or another gamma; and the energy of details, which another decoder changes by less than a blur.
"""

import hashlib
import math
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from splatfix.core.reading import read_start

ACROSS, DOWN = 8, 6
"""Cells of the grid; as ``smoke_trainer/photos.py`` has it."""
FINE = 5
"""Frequencies of a block of JPEG, across and down together, from which on they are details; as in ``smoke_trainer/photos.py``."""
SMALLEST_CELL = 70
"""Pixels, of a progressive JPEG, of which the means of blocks alone are read: where cells cut blocks, it is off by 1.8 of 255 at
640 pixels wide, by 6 at 400 and by 20 at 160."""
MOST_BYTES = 64 << 20
MOST_OF_JPEG, MOST_OF_PNG = 3_000_000, 700_000
"""Pixels of a photo, from its top: whole rows of cells up to there, which Python decodes in one to four seconds.
Larger PNG are not compared pixel by pixel; see also ``MOST_PIXELS`` in ``smoke_trainer/photos.py``."""
Grid: TypeAlias = list[list[tuple[float, float, float]]]
"""Rows of cells from the top, each cell red, green and blue in 0..255."""
Line: TypeAlias = list[Sequence[float]]
"""A row of pixels in 0..255: all red, all green, all blue."""


T = TypeVar("T")
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
_NAMES = {_PNG: "PNG", _JPEG: "JPEG"}


class Unknown(Exception):
    """A file that is not decoded here; the message says why."""


def grid_of(path: Path) -> tuple[Grid, list[float]]:
    """The mean colors of a photo, of as many rows of cells as are cheap to decode; over black where it has an alpha channel.

    And for each of these rows the energy of a baseline JPEG's details: the mean over its whole blocks of the squares of their
    coefficients of brightness from FINE on. What a decoder makes of them has the same (Parseval), whatever its rounding.

    Raises:
        Unknown: a format that is not decoded here, or a file that is damaged.
    """
    return _decoded(path, {_PNG: _png, _JPEG: _jpeg})


def pixels_of(path: Path) -> list[Line]:
    """Every row of a PNG, over black where it has an alpha channel.

    Raises:
        Unknown: another format, a file that is damaged, or one with too many pixels.
    """
    return _decoded(path, {_PNG: _all_lines})


def digest_of(path: Path) -> str:
    """SHA-256 of the planes of a PNG, each row by row; of a gray one three times the same.

    Raises:
        Unknown: as :func:`pixels_of`.
    """
    return _decoded(path, {_PNG: _digest})


def _decoded(path: Path, decoders: Mapping[bytes, Callable[[bytes], T]]) -> T:
    """A file by the decoder of how it begins."""
    try:
        content = read_start(path, MOST_BYTES + 1)
    except OSError as error:
        raise Unknown(f"{path.name} cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise Unknown(f"{path.name} is too large")
    try:
        for magic, decoder in decoders.items():
            if content.startswith(magic):
                return decoder(content)
    except (IndexError, KeyError, StopIteration, ValueError, struct.error, zlib.error) as error:
        raise Unknown(f"{path.name}: {error}") from None
    raise Unknown(f"{path.name} is not {' or '.join(_NAMES[magic] for magic in decoders)}")


def _rows_of_cells(width: int, height: int, most: int) -> int:
    """How many are decoded."""
    if width < ACROSS or height < DOWN:
        raise Unknown("a photo that is smaller than the grid")
    cells = min(DOWN, most * DOWN // (width * height))
    if not cells:
        raise Unknown(f"a photo of {width} x {height} pixels takes too long to decode here")
    return cells


def _shares(size: int, cells: int, steps: int, length: float) -> list[list[tuple[int, float, float]]]:
    """For each step of that length along a side, the cells that it lies in, with where it enters each, and the length in it."""
    edges = [size * number / cells for number in range(cells + 1)]
    shares = []
    for step in range(steps):
        begin, end = step * length, min((step + 1) * length, size)
        overlaps = (
            (cell, max(low - begin, 0.0), min(end, high) - max(begin, low))
            for cell, (low, high) in enumerate(pairwise(edges))
        )
        shares.append([overlap for overlap in overlaps if overlap[2] > 0])
    return shares


# PNG (ISO/IEC 15948)


def _png(content: bytes) -> tuple[Grid, list[float]]:
    width, height = _size(content)
    cells = _rows_of_cells(width, height, MOST_OF_PNG)
    rows = -(-height * cells // DOWN)
    edges = [width * number / ACROSS for number in range(ACROSS + 1)]
    sums = [[[0.0, 0.0, 0.0] for _ in range(ACROSS)] for _ in range(DOWN)]
    shares = _shares(height, DOWN, rows, 1.0)
    area = width * height / (ACROSS * DOWN)
    for row, (line, channels) in enumerate(_lines(content, rows)):
        for color, plane in enumerate(_colors(line, channels)):
            for column, (begin, end) in enumerate(pairwise(edges)):
                total = _sum_between(plane, begin, end) / area
                for cell, _, share in shares[row]:
                    sums[cell][column][color] += share * total
    return [[(red, green, blue) for red, green, blue in row] for row in sums[:cells]], []


def _all_lines(content: bytes) -> list[Line]:
    return [_colors(line, channels) for line, channels in _lines(content, _height(content))]


def _digest(content: bytes) -> str:
    planes: list[list[bytearray]] = [[], [], [], []]
    for line, channels in _lines(content, _height(content)):
        order = {1: (0, 0, 0), 2: (0, 0, 0, 1)}.get(channels, range(channels))
        for plane, channel in zip(planes, order, strict=False):
            plane.append(line[channel::channels])
    return hashlib.sha256(b"".join(b"".join(plane) for plane in planes)).hexdigest()


def _height(content: bytes) -> int:
    """Of a picture that is small enough."""
    width, height = _size(content)
    if width * height > MOST_OF_PNG:
        raise Unknown(f"a picture of {width} x {height} pixels takes too long to decode here")
    return height


def _size(content: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def _lines(content: bytes, rows: int) -> Iterator[tuple[bytearray, int]]:
    """The first rows of a PNG, each with its number of channels."""
    width, _, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", content[16:29])
    channels = {0: 1, 2: 3, 4: 2, 6: 4}.get(kind)
    if depth != 8 or channels is None or interlaced:
        raise Unknown(f"a PNG of {depth} bits, color type {kind}" + ", interlaced" * interlaced)
    compressed, offset = [], 8
    while offset < len(content):
        (length,) = struct.unpack(">I", content[offset : offset + 4])
        name = content[offset + 4 : offset + 8]
        if name == b"IDAT":
            compressed.append(content[offset + 8 : offset + 8 + length])
        elif name == b"tRNS":
            raise Unknown("a PNG with a color that is transparent")
        offset += length + 12
    stride = width * channels
    raw = zlib.decompressobj().decompress(b"".join(compressed), rows * (stride + 1))
    line = bytearray(stride)
    for row in range(rows):
        start = row * (stride + 1)
        line = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), line, channels)
        yield line, channels


def _colors(line: bytearray, channels: int) -> Line:
    """The three colors of a row, over black."""
    planes: Line = [line[channel::channels] for channel in range(channels)]
    colors = planes[:3] if channels > 2 else planes[:1] * 3
    if channels in (2, 4):
        colors = [
            [value * alpha / 255 for value, alpha in zip(plane, planes[-1], strict=True)] for plane in colors
        ]
    return colors


def _sum_between(numbers: Sequence[float], begin: float, end: float) -> float:
    low, high = math.ceil(begin), math.floor(end)
    total = float(sum(numbers[low:high]))
    if low > begin:
        total += (low - begin) * numbers[low - 1]
    if high < end:
        total += (end - high) * numbers[high]
    return total


def _unfiltered(kind: int, line: bytearray, above: bytearray, step: int) -> bytearray:
    if kind == 1:
        for i in range(step, len(line)):
            line[i] = (line[i] + line[i - step]) & 255
    elif kind == 2:
        return bytearray((one + other) & 255 for one, other in zip(line, above, strict=True))
    elif kind == 3:
        for i in range(len(line)):
            left = line[i - step] if i >= step else 0
            line[i] = (line[i] + (left + above[i]) // 2) & 255
    elif kind == 4:
        for i in range(len(line)):
            left, corner = (line[i - step], above[i - step]) if i >= step else (0, 0)
            up = above[i]
            near_left, near_up = abs(up - corner), abs(left - corner)
            near_corner = abs(left + up - 2 * corner)
            if near_left <= near_up and near_left <= near_corner:
                predicted = left
            elif near_up <= near_corner:
                predicted = up
            else:
                predicted = corner
            line[i] = (line[i] + predicted) & 255
    elif kind:
        raise ValueError(f"unknown filter {kind}")
    return line


# JPEG (ITU-T T.81)

_END = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_ZIGZAG = sorted(
    product(range(8), range(8)), key=lambda pair: (sum(pair), pair[0] if sum(pair) % 2 == 0 else pair[1])
)
"""Of each coefficient in the order of the file (figure A.6), its frequencies across and down."""
_FREQUENCIES = [across + down for across, down in _ZIGZAG]


def _jpeg(content: bytes) -> tuple[Grid, list[float]]:
    """Up to the first scan, which has the means of all blocks."""
    steps: dict[int, Sequence[int]] = {}
    trees: dict[int, list[tuple[int, int]]] = {}
    frame, restart, kind, offset = b"", 0, 0, 2
    while True:
        marker = content[offset + 1]
        (length,) = struct.unpack(">H", content[offset + 2 : offset + 4])
        part = content[offset + 4 : offset + 2 + length]
        offset += 2 + length
        if marker == 0xDB:
            while part:
                wide, number = part[0] >> 4, part[0] & 15
                steps[number] = struct.unpack(">64H" if wide else ">64B", part[1 : 129 if wide else 65])
                part = part[129 if wide else 65 :]
        elif marker == 0xC4:
            while part:
                count = sum(part[1:17])
                trees[part[0]] = _tree(part[1:17], part[17 : 17 + count])
                part = part[17 + count :]
        elif marker in (0xC0, 0xC1, 0xC2):
            frame, kind = part, marker
        elif 0xC3 <= marker <= 0xCF:
            raise Unknown("a JPEG that is neither baseline nor progressive")
        elif marker == 0xDD:
            (restart,) = struct.unpack(">H", part[:2])
        elif marker == 0xEE and part.startswith(b"Adobe") and part[11] != 1:
            raise Unknown("a JPEG that is not in YCbCr")
        elif marker == 0xDA:
            return _first_scan(content[offset:], part, frame, steps, trees, restart, progressive=kind == 0xC2)


def _first_scan(
    data: bytes,
    scan: bytes,
    frame: bytes,
    steps: dict[int, Sequence[int]],
    trees: dict[int, list[tuple[int, int]]],
    restart: int,
    *,
    progressive: bool,
) -> tuple[Grid, list[float]]:
    height, width, count = struct.unpack(">HHB", frame[1:6])
    if count not in (1, 3) or scan[0] != count or frame[0] != 8:
        raise Unknown("a JPEG of other than one or three components of 8 bits in one scan")
    shift = scan[-1] & 15 if progressive else 0
    parts = [frame[6 + 3 * number : 9 + 3 * number] for number in range(count)]
    tables = {scan[1 + 2 * number]: scan[2 + 2 * number] for number in range(count)}
    widest, tallest = max(part[1] >> 4 for part in parts), max(part[1] & 15 for part in parts)
    if count == 1:
        widest = tallest = 1
        parts = [bytes((parts[0][0], 0x11, parts[0][2]))]
    if progressive and min(width / ACROSS, height / DOWN) < SMALLEST_CELL:
        raise Unknown(f"a progressive JPEG of {width} x {height} pixels")
    units, rows = -(-width // (8 * widest)), -(-height // (8 * tallest))
    cells = _rows_of_cells(width, height, MOST_OF_JPEG)
    planes, shares, order = [], [], []
    for number, (name, sampling, table) in enumerate(parts):
        across, down = sampling >> 4, sampling & 15
        wide, tall = 8 * widest / across, 8 * tallest / down
        shares.append(
            (_shares(width, ACROSS, units * across, wide), _shares(height, DOWN, rows * down, tall))
        )
        planes.append([[0.0] * ACROSS for _ in range(DOWN)])
        dc = trees[tables[name] >> 4]
        ac = [] if progressive else trees[16 | tables[name] & 15]
        scale = [step << shift for step in steps[table]]
        for block in range(across * down):
            order.append((number, across, down, block % across, block // across, dc, ac, scale))
    end = _END.search(data)
    pieces = _RESTART.split(data[: end.start() if end else len(data)])
    blocks = _blocks(pieces, order, restart, units * rows, count)
    energies, counts = [0] * cells, [0] * cells
    for unit in range(units * rows):
        row = unit // units
        if row * 8 * tallest >= height * cells / DOWN:
            break
        for number, across, down, x, y, _, _, scale in order:
            values = next(blocks)
            column, line = unit % units * across + x, row * down + y
            band = 8 * line * DOWN // height
            if number == 0 and 8 * column + 8 <= width and 8 * line + 8 <= height and band < cells:
                fine = (value * scale[index] for index, value in values if _FREQUENCIES[index] >= FINE)
                energies[band] += sum(value * value for value in fine)
                counts[band] += 1
            wide, tall = widest / across, tallest / down
            sides, heights = shares[number]
            for cell_down, top, high in heights[line]:
                for cell, left, long in sides[column]:
                    total = 8.0 * scale[0] * values[0][1]
                    if long < 8 * wide or high < 8 * tall:
                        weights = _weights(left / wide, long / wide, top / tall, high / tall)
                        total = sum(value * scale[index] * weights[index] for index, value in values)
                    planes[number][cell_down][cell] += wide * tall * total + 128 * long * high
    area = width * height / (ACROSS * DOWN)
    grid: Grid = []
    for row in range(cells):
        means = [[plane[row][cell] / area for plane in planes] for cell in range(ACROSS)]
        grid.append([_rgb(*cell) if count == 3 else (cell[0], cell[0], cell[0]) for cell in means])
    if progressive or parts[0][1] != widest << 4 | tallest:
        return grid, []
    return grid, [energy / max(1, count) for energy, count in zip(energies, counts, strict=True)]


@lru_cache(1024)
def _weights(left: float, long: float, top: float, high: float) -> list[float]:
    """What each coefficient, in the order of the file, adds to the sum over a part of a block (ITU-T T.81, A.3.3).

    To the sum over a whole block only the first does. Parts taken for a share of the whole make up to 25 of 255 of a small cell.
    """
    across, down = _weights_along(left, long), _weights_along(top, high)
    return [across[u] * down[v] for u, v in _ZIGZAG]


def _weights_along(begin: float, length: float) -> list[float]:
    overlaps = [min(pixel + 1.0, begin + length) - max(pixel, begin) for pixel in range(8)]
    weights = []
    for frequency in range(8):
        waves = [math.cos((2 * pixel + 1) * frequency * math.pi / 16) for pixel in range(8)]
        total = sum(max(0.0, overlap) * wave for overlap, wave in zip(overlaps, waves, strict=True))
        weights.append(total * (0.5 if frequency else math.sqrt(0.125)))
    return weights


def _rgb(light: float, blue: float, red: float) -> tuple[float, float, float]:
    """JFIF's YCbCr."""
    blue, red = blue - 128, red - 128
    return light + 1.402 * red, light - 0.344136 * blue - 0.714136 * red, light + 1.772 * blue


def _tree(counts: bytes, symbols: bytes) -> list[tuple[int, int]]:
    """For each 16 bits that may come, the length of the code at their beginning, and its symbol."""
    table: list[tuple[int, int]] = []
    first = 0
    for length, count in enumerate(counts, 1):
        for symbol in symbols[first : first + count]:
            table += [(length, symbol)] * (1 << (16 - length))
        first += count
    return table + [(16, 0)] * ((1 << 16) - len(table))


def _blocks(
    pieces: Sequence[bytes], order: Sequence[tuple[Any, ...]], restart: int, units: int, count: int
) -> Iterator[list[tuple[int, int]]]:
    """Of each block the coefficients that are not zero, with their places in the order of the file."""
    unit = 0
    for piece in pieces:
        data = piece.replace(b"\xff\x00", b"\xff") + bytes(64)
        offset, held, bits = 0, 0, 0
        means = [0] * count
        for _ in range(restart or units):
            if unit >= units:
                return
            unit += 1
            for number, _, _, _, _, dc, ac, _ in order:
                position, values = 0, []
                table = dc
                while position < 64:
                    if bits < 32:
                        more = int.from_bytes(data[offset : offset + 8], "big")
                        held = (held << 64 | more) & ((1 << 96) - 1)
                        bits += 64
                        offset += 8
                    length, symbol = table[held >> (bits - 16) & 0xFFFF]
                    bits -= length
                    size = symbol if position == 0 else symbol & 15
                    extra = held >> (bits - size) & ((1 << size) - 1)
                    bits -= size
                    if position == 0:
                        if size and extra < 1 << (size - 1):
                            extra += 1 - (1 << size)
                        means[number] += extra
                        values.append((0, means[number]))
                        if not ac:
                            break
                        table, position = ac, 1
                    elif size:
                        position += symbol >> 4
                        if extra < 1 << (size - 1):
                            extra += 1 - (1 << size)
                        values.append((position, extra))
                        position += 1
                    elif symbol == 0xF0:
                        position += 16
                    else:
                        break
                yield values
