"""Writes scalars into a TensorBoard event file, without the package tensorboard.

The format is TensorFlow's: records of length, masked CRC-32C of the length, data, masked CRC-32C of the data
(tensorflow/core/lib/io/record_writer.h), each holding one ``Event`` message (tensorflow/core/util/event.proto).
"""

from __future__ import annotations

import os
import struct
import time
from functools import cache
from pathlib import Path

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected
_MASK = 0xA282EAD8


class EventFile:
    """One new event file in a folder; every scalar is on disk when ``add`` returns."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"events.out.tfevents.{int(time.time())}.splatfix.{os.getpid()}"
        self._file = self.path.open("wb")
        self._write(_double(1, time.time()) + _bytes(3, b"brain.Event:2"))

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, scalars: dict[str, float], step: int, when: float) -> None:
        """Write one value per tag; ``when`` in seconds since 1970."""
        values = b"".join(
            _bytes(1, _bytes(1, tag.encode()) + b"\x15" + struct.pack("<f", value))
            for tag, value in scalars.items()
        )
        self._write(_double(1, when) + b"\x10" + _varint(step) + _bytes(5, values))

    def _write(self, event: bytes) -> None:
        head = struct.pack("<Q", len(event))
        self._file.write(head + _masked(head) + event + _masked(event))
        self._file.flush()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(field: int, data: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def _double(field: int, value: float) -> bytes:
    return bytes([field << 3 | 1]) + struct.pack("<d", value)


@cache
def _table() -> tuple[int, ...]:
    rows = []
    for row in range(256):
        for _ in range(8):
            row = row >> 1 ^ (_POLYNOMIAL if row & 1 else 0)
        rows.append(row)
    return tuple(rows)


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), as RFC 3720 defines it."""
    value, table = 0xFFFFFFFF, _table()
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    value = crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + _MASK) & 0xFFFFFFFF)
