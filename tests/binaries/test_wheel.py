"""Native members of wheels: stored, deflated, damaged."""

import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from splatfix.binaries import BinaryError, read_wheel
from tests.tables import data

from .forge_elf import ElfForge
from .forge_fatbin import TYPICAL
from .forge_pe import PeForge

LIBRARY = ElfForge(sections=((".nv_fatbin", TYPICAL),), needed=("libc10.so",)).build()
MEMBERS = {
    "pkg/__init__.py": b"print('hello')",
    "pkg/_C.cpython-311-x86_64-linux-gnu.so": LIBRARY,
    "pkg/_C.pyd": PeForge(sections=((".nv_fatb", TYPICAL),)).build(),
    "pkg-1.0.dist-info/RECORD": b"",
}


def wheel(path: Path, method: int = zipfile.ZIP_DEFLATED, members: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in (MEMBERS if members is None else members).items():
            archive.writestr(name, content)
    return path


METHODS = pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])


@METHODS
def test_members_by_every_method(tmp_path: Path, method: int) -> None:
    path = wheel(tmp_path / "pkg-1.0-cp311-cp311-linux_x86_64.whl", method)
    first, second = read_wheel(path)
    assert first.path == f"{path}!pkg/_C.cpython-311-x86_64-linux-gnu.so"
    assert (first.format, second.format) == ("elf", "pe")
    assert first.size == len(LIBRARY) and first.needed == ("libc10.so",)
    assert [len(box.entries) for box in first.fatbins] == [3, 1, 0]
    assert LIBRARY[first.fatbins[0].offset :].startswith(TYPICAL[:16])


def test_temporary_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    read_wheel(wheel(tmp_path / "a.whl"))
    with pytest.raises(BinaryError):
        read_wheel(wheel(tmp_path / "b.whl", members={"a.so": LIBRARY[:-5]}))
    assert list(scratch.iterdir()) == []


@METHODS
def test_one_damaged_member_can_be_set_aside(tmp_path: Path, method: int) -> None:
    path = wheel(tmp_path / "a.whl", method, {"bad.so": LIBRARY[:300], "good.so": LIBRARY})
    with pytest.raises(BinaryError, match=r"a\.whl!bad\.so: ") as caught:
        read_wheel(path)
    assert caught.value.__cause__ is not caught.value
    heard: list[str] = []
    (good,) = read_wheel(path, on_error=lambda label, error: heard.append(f"{label} {error}"))
    assert good.path.endswith("!good.so")
    assert len(heard) == 1 and "past the end" in heard[0]


def test_a_stored_member_cannot_reach_into_the_next(tmp_path: Path) -> None:
    """The section table of a truncated library would be found, were the member's end not the end."""
    path = wheel(
        tmp_path / "a.whl", zipfile.ZIP_STORED, {"a.so": LIBRARY[: len(LIBRARY) - 64], "b.so": LIBRARY}
    )
    with pytest.raises(BinaryError, match=r"a\.so: .*reaches past the end of the file"):
        read_wheel(path)


def test_damaged_archives(tmp_path: Path) -> None:
    path = wheel(tmp_path / "a.whl")
    packed = path.read_bytes()
    for size in (0, 3, 50, len(packed) // 2, len(packed) - 10):
        path.write_bytes(packed[:size])
        with pytest.raises(BinaryError, match=r"a\.whl"):
            read_wheel(path)


@pytest.mark.parametrize("forged", data(__file__)["forged"].values(), ids=data(__file__)["forged"])
def test_a_forged_record_of_the_directory(tmp_path: Path, forged: tuple[Any, ...]) -> None:
    method, zeros, offset, layout, value, complaint = forged
    path = wheel(tmp_path / "a.whl", method, {"a.so": LIBRARY + bytes(zeros)})
    packed = bytearray(path.read_bytes())
    struct.pack_into(layout, packed, packed.rindex(b"PK\x01\x02") + offset, value)
    path.write_bytes(packed)
    with pytest.raises(BinaryError, match=complaint):
        read_wheel(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_wheels_do_not_use_are_named(tmp_path: Path, method: int) -> None:
    with pytest.raises(BinaryError, match=rf"_C\..*packed by method {method}"):
        read_wheel(wheel(tmp_path / "a.whl", method))


@METHODS
def test_zip64_and_data_in_front(tmp_path: Path, method: int) -> None:
    """As zipfile writes a member of unknown length, behind a shell script."""
    path = tmp_path / "a.whl"
    path.write_bytes(b"#!/bin/sh\nexit 1\n")
    with zipfile.ZipFile(path, "a", method) as archive:
        with archive.open("a.so", "w", force_zip64=True) as out:
            out.write(LIBRARY)
        archive.comment = b"a comment at the end"
    (binary,) = read_wheel(path)
    assert binary.size == len(LIBRARY) and len(binary.fatbins) == 3


def test_zip64_sizes_and_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit lowered, zipfile writes ZIP64 records for a small archive."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    path = wheel(tmp_path / "a.whl", zipfile.ZIP_STORED, {"a.so": LIBRARY, "b.so": LIBRARY})
    assert b"PK\x06\x06" in path.read_bytes()
    assert [binary.size for binary in read_wheel(path)] == [len(LIBRARY)] * 2


def test_an_empty_member(tmp_path: Path) -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with pytest.raises(BinaryError, match=r"a\.whl!a\.so: an empty file"):
            read_wheel(wheel(tmp_path / "a.whl", method, {"a.so": b""}))


def test_a_wheel_of_too_many_libraries_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatfix.binaries.wheel.MOST_LIBRARIES", 3)
    with zipfile.ZipFile(tmp_path / "many.whl", "w") as archive:
        for number in range(4):
            archive.writestr(f"{number}.so", b"")
    with pytest.raises(BinaryError, match="more than 3 libraries"):
        read_wheel(tmp_path / "many.whl")
