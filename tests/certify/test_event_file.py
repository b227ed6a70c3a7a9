"""The event file, read back by an independent reader of the record and message forms."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from splatfix.certify.event_file import EventFile, crc32c


def fields(data: bytes) -> list[tuple[int, object]]:
    """Fields of a protobuf message: varints, fixed numbers and bytes."""
    at, found = 0, []

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value: object = varint()
        elif key & 7 == 1:
            (value,), at = struct.unpack_from("<d", data, at), at + 8
        elif key & 7 == 5:
            (value,), at = struct.unpack_from("<f", data, at), at + 4
        else:
            size = varint()
            value, at = data[at : at + size], at + size
        found.append((key >> 3, value))
    return found


def records(path: Path) -> list[bytes]:
    data, at, found = path.read_bytes(), 0, []

    def checked(piece: bytes, stored: bytes) -> bytes:
        masked = (struct.unpack("<I", stored)[0] - 0xA282EAD8) & 0xFFFFFFFF
        assert (masked >> 17 | masked << 15) & 0xFFFFFFFF == crc32c(piece)
        return piece

    while at < len(data):
        (size,) = struct.unpack("<Q", checked(data[at : at + 8], data[at + 8 : at + 12]))
        found.append(checked(data[at + 12 : at + 12 + size], data[at + 12 + size : at + 16 + size]))
        at += 16 + size
    return found


@pytest.mark.parametrize(
    ("data", "value"),  # RFC 3720, B.4, and the usual check value
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
    ],
)
def test_checksum_is_castagnoli(data: bytes, value: int) -> None:
    assert crc32c(data) == value


def test_scalars_round_trip(tmp_path: Path) -> None:
    with EventFile(tmp_path / "tensorboard") as board:
        board.add({"memory/vram_reserved_gb": 1.5, "load/cpu_percent": 88.25}, step=300, when=1000.5)
        path = board.path
    head, event = records(path)
    assert dict(fields(head))[3] == b"brain.Event:2"
    read = dict(fields(event))
    assert (read[1], read[2]) == (1000.5, 300)
    values = [dict(fields(value)) for _, value in fields(read[5])]
    assert [(value[1], value[2]) for value in values] == [
        (b"memory/vram_reserved_gb", 1.5),
        (b"load/cpu_percent", 88.25),
    ]


def test_tensorboard_reads_it(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with EventFile(tmp_path) as board:
        for step in range(5):
            board.add({"memory/vram_creep_gb": step / 4}, step, 1000.0 + step)
    events = reader.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(row.step, row.value) for row in events.Scalars("memory/vram_creep_gb")] == [
        (n, n / 4) for n in range(5)
    ]
