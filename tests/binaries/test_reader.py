"""Opening files: real ones, strange ones, and telling formats apart."""

import dataclasses
import json
import mmap
import os
import struct
from pathlib import Path

import pytest

from splatfix.binaries import BinaryError, EntryKind, is_binary, read_binary
from splatfix.binaries._bytes import Reader
from splatfix.binaries.model import arch_order

from .forge_elf import ElfForge
from .forge_fatbin import SASS, TYPICAL, A, entry, fatbin_of
from .forge_pe import PeForge


def test_a_bare_fatbin(tmp_path: Path) -> None:
    path = tmp_path / "kernels.fatbin"
    path.write_bytes(TYPICAL)
    binary = read_binary(path)
    assert (binary.format, binary.machine, binary.size) == ("fatbin", "cuda", len(TYPICAL))
    assert [len(box.entries) for box in binary.fatbins] == [3, 1, 0]


@pytest.mark.parametrize(
    ("abi", "flags", "note", "arch"),
    [
        (7, 0x5A, "", "sm_90"),
        (7, 0x5A | 0x800, "", "sm_90a"),
        (8, 0x6006402, "", "sm_100"),
        (8, 0x6006402, "ptxas\0-arch sm_100f -m 64 \0", "sm_100f"),
        (8, 0x6006402, "ptxas\0-arch sm_100a -m 64 \0", "sm_100a"),
        (8, 0x6006402, "ptxas\0-arch sm_90a -m 64 \0", "sm_100"),  # a note about something else
    ],
)
def test_a_bare_cubin(tmp_path: Path, abi: int, flags: int, note: str, arch: str) -> None:
    forge = ElfForge(machine=190, abi_version=abi, flags=flags, dynamic=False)
    forge.sections = ((".text.k", b"\0" * 64), (".note.nv.tkinfo", note.encode())) if note else ()
    path = tmp_path / "k.cubin"
    path.write_bytes(forge.build())
    binary = read_binary(path)
    assert binary.machine == "cuda"
    assert binary.archs == ((EntryKind.SASS, arch),)


def test_a_cubin_without_an_architecture_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "k.cubin"
    path.write_bytes(ElfForge(machine=190, abi_version=8, dynamic=False).build())
    with pytest.raises(BinaryError, match="name no architecture"):
        read_binary(path)


def test_results_are_plain_data(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(ElfForge(sections=((".nv_fatbin", TYPICAL),), needed=("libc.so.6",)).build())
    binary = read_binary(path)
    again = json.loads(json.dumps(dataclasses.asdict(binary)))
    assert again["fatbins"][0]["entries"][1]["kind"] == "sass"
    assert again["fatbins"][0]["entries"][2]["ptx_version"] == [9, 0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        binary.size = 3  # type: ignore[misc]


def test_archs_are_distinct_and_in_order() -> None:
    assert sorted(["sm_120", "sm_90a", "sm_90", "sm_100f", "sm_100a", "sm_100"], key=arch_order) == [
        "sm_90",
        "sm_90a",
        "sm_100",
        "sm_100a",
        "sm_100f",
        "sm_120",
    ]


def test_names_that_are_not_text_still_fit_json(tmp_path: Path) -> None:
    data = ElfForge(needed=("libXYZ.so",)).build().replace(b"libXYZ", b"lib\xff\xfeZ")
    path = tmp_path / "lib.so"
    path.write_bytes(data)
    assert read_binary(path).needed == ("lib\\xff\\xfeZ.so",)


def test_what_is_a_binary(tmp_path: Path) -> None:
    cases = {
        "a.so": (ElfForge().build(), True),
        "b.dll": (PeForge().build(), True),
        "c.fatbin": (TYPICAL, True),
        "d.so": (b"GROUP ( libc.so.6 )", False),
        "e.exe": (b"MZ" + bytes(200), False),
        "f.dll": (b"MZ", False),
        "empty.so": (b"", False),
    }
    for name, (data, expected) in cases.items():
        (tmp_path / name).write_bytes(data)
        assert is_binary(tmp_path / name) is expected, name
    assert not is_binary(tmp_path) and not is_binary(tmp_path / "absent") and not is_binary("a\0b")


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "an empty file"),
        (b"\x7f", "neither an ELF nor a PE"),
        (b"\x7fELF", "reaches past the end"),
        (b"MZ", "reaches past the end"),
        (b"hello world", "neither an ELF nor a PE"),
    ],
)
def test_what_is_not_one_is_said_with_the_file_name(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = tmp_path / "thing.so"
    path.write_bytes(data)
    with pytest.raises(BinaryError, match=rf"thing\.so'?: .*{complaint}|thing\.so'?: {complaint}"):
        read_binary(path)


def test_paths_that_are_not_files(tmp_path: Path) -> None:
    with pytest.raises(BinaryError, match="No such file"):
        read_binary(tmp_path / "absent.so")
    with pytest.raises(BinaryError, match="not a regular file"):
        read_binary(tmp_path)
    with pytest.raises(BinaryError, match="cannot be read"):
        read_binary("a\0b")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_does_not_block(tmp_path: Path) -> None:
    pipe = tmp_path / "lib.so"
    os.mkfifo(pipe)
    assert not is_binary(pipe)
    with pytest.raises(BinaryError, match="not a regular file"):
        read_binary(pipe)


def test_a_huge_sparse_library_is_read_from_its_headers_alone(tmp_path: Path) -> None:
    """A payload of 3 GiB that is not there: reading it would take seconds and show in the memory map."""
    size = 3 << 30
    head = bytearray(fatbin_of(entry(SASS, 120, flags=A, payload=b"")))
    struct.pack_into("<Q", head, 8, 64 + size)  # the fatbin's body
    struct.pack_into("<Q", head, 16 + 8, size)  # the entry's payload
    path = tmp_path / "big.fatbin"
    with path.open("wb") as out:
        out.write(head)
        out.truncate(len(head) + size)
    binary = read_binary(path)
    assert binary.archs == ((EntryKind.SASS, "sm_120a"),)


def test_a_reader_never_looks_outside_its_window() -> None:
    reader = Reader(b"0123456789", 2, 5)
    word = struct.Struct("<I")
    assert reader.take(0, 5, "x") == b"23456"
    assert reader.unpack(word, 1, "x") == struct.unpack("<I", b"3456")
    assert reader.find(b"7", 0, 100) == -1 and reader.find(b"6", 0, 100) == 4
    for offset, length in ((0, 6), (5, 1), (-1, 1), (0, -1), (2**70, 1)):
        with pytest.raises(BinaryError):
            reader.take(offset, length, "x")
    with pytest.raises(BinaryError):
        reader.unpack(word, 2, "x")
    with pytest.raises(BinaryError, match="no end within"):
        reader.craw(0, "x")
    with pytest.raises(BinaryError, match="outside its string table"):
        reader.craw(5, "x")
    with pytest.raises(BinaryError):
        list(reader.records(word, 0, 2, "x"))
    for base, size in ((11, None), (0, 11), (-1, 2), (3, -1)):
        with pytest.raises(BinaryError):
            Reader(b"0123456789", base, size)


@pytest.mark.skipif(not hasattr(mmap, "MADV_RANDOM"), reason="the system takes no advice on readahead")
def test_readahead_is_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advice: list[int] = []

    class Watched(mmap.mmap):
        def madvise(self, option: int, *rest: int) -> None:
            advice.append(option)
            super().madvise(option, *rest)

    monkeypatch.setattr(mmap, "mmap", Watched)
    path = tmp_path / "lib.so"
    path.write_bytes(ElfForge().build())
    read_binary(path)
    assert advice == [mmap.MADV_RANDOM]
