"""The front door: a file, a wheel, a folder, or a sentence about what it is instead."""

import zipfile
from pathlib import Path

import pytest

from splatfix.binaries import BinaryError, read_path

from .forge_elf import ElfForge
from .forge_fatbin import TYPICAL

LIBRARY = ElfForge(sections=((".nv_fatbin", TYPICAL),)).build()


def test_each_kind_of_thing(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    (folder / "torch").mkdir(parents=True)
    for name in ("_C.so", "torch/libtorch.so"):
        (folder / name).write_bytes(LIBRARY)
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.writestr("x/_C.so", LIBRARY)
    (tmp_path / "program").write_bytes(LIBRARY)
    (tmp_path / "k.fatbin").write_bytes(TYPICAL)

    def names(path: Path) -> list[str]:
        return [binary.path.removeprefix(str(tmp_path) + "/") for binary in read_path(path)]

    assert names(folder) == ["site-packages/_C.so", "site-packages/torch/libtorch.so"]
    assert names(tmp_path / "x.whl") == ["x.whl!x/_C.so"]
    assert names(tmp_path / "program") == ["program"]
    assert names(tmp_path / "k.fatbin") == ["k.fatbin"]
    (folder / "empty").mkdir()
    assert names(folder / "empty") == []


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"!<arch>\nlibcudart_static.a/", "a static library"),
        (b"\xcf\xfa\xed\xfe" + bytes(40), "macOS"),
        (b"\x1f\x8b\x08\x00" + bytes(40), "gzip archive"),
        (b"PK\x05\x06" + bytes(18), "empty zip"),
        (b"import torch\n", "neither a library"),
        (b"MZ" + bytes(100), "neither a library"),
        (b"", "empty"),
    ],
)
def test_everything_else_is_named(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = tmp_path / "thing"
    path.write_bytes(data)
    with pytest.raises(BinaryError, match=complaint):
        read_path(path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(BinaryError, match="No such file"):
        read_path(tmp_path / "absent")
    with pytest.raises(BinaryError, match="cannot be read"):
        read_path("a\0b")


def test_one_damaged_file_in_a_folder_can_be_set_aside(tmp_path: Path) -> None:
    (tmp_path / "bad.so").write_bytes(LIBRARY[:200])
    (tmp_path / "good.so").write_bytes(LIBRARY)
    with pytest.raises(BinaryError, match=r"bad\.so"):
        read_path(tmp_path)
    heard: list[str] = []
    assert len(read_path(tmp_path, on_error=lambda path, _: heard.append(Path(path).name))) == 1
    assert heard == ["bad.so"]
