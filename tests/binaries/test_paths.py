"""What a person may point at: a library, a wheel, a folder, and the walk through it."""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splatfix.binaries import BinaryError, NativeFiles, find_binaries, paths, read_files
from splatfix.binaries.reader import is_native_name
from tests.files import put
from tests.plan.machines import refused
from tests.tables import data

from .forge_elf import ElfForge
from .forge_fatbin import TYPICAL
from .forge_pe import PeForge

LIBRARY = ElfForge(sections=((".nv_fatbin", TYPICAL),)).build()


def test_each_kind_of_thing(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    (folder / "torch").mkdir(parents=True)
    for name in ("_C.so", "torch/libtorch.so"):
        (folder / name).write_bytes(LIBRARY)
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.writestr("x/_C.so", LIBRARY)
        archive.writestr("x/half.so", LIBRARY[:200])
    (tmp_path / "program").write_bytes(LIBRARY)
    (tmp_path / "k.fatbin").write_bytes(TYPICAL)
    (tmp_path / "bad.so").write_bytes(LIBRARY[:200])
    (folder / "empty").mkdir()
    named = ("site-packages", "site-packages/empty", "x.whl", "program", "k.fatbin", "bad.so")
    read = read_files(tmp_path / name for name in named)
    assert [binary.path.removeprefix(f"{tmp_path}/") for binary in read.binaries] == [
        *("site-packages/_C.so", "site-packages/torch/libtorch.so"),
        *("x.whl!x/_C.so", "program", "k.fatbin"),
    ]
    damaged = dict(read.unreadable)
    assert list(damaged) == [f"{tmp_path}/x.whl!x/half.so", f"{tmp_path}/bad.so"]
    assert all("past the end" in reason and str(tmp_path) not in reason for reason in damaged.values())


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"!<arch>\nlibcudart_static.a/", "a static library"),
        (b"\xcf\xfa\xed\xfe" + bytes(40), "macOS"),
        (b"\x1f\x8b\x08\x00" + bytes(40), "gzip archive"),
        (b"PK\x05\x06" + bytes(18), "empty zip"),
        (b"PK\x03\x04" + bytes(40), "damaged one"),
        (b"import torch\n", "neither a library"),
        (b"MZ" + bytes(100), "neither a library"),
        (b"\x7f", "neither a library"),
        (b"", "empty"),
    ],
)
def test_everything_else_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "thing"
    path.write_bytes(content)
    error = refused(read_files, [path])
    assert error.code == "not-a-binary" and complaint in error.what
    (tmp_path / "_C.so").write_bytes(LIBRARY)
    beside = read_files([path, tmp_path / "_C.so"])
    assert len(beside.binaries) == 1 and [name for name, _ in beside.unreadable] == [str(path)]


def test_nothing_there(tmp_path: Path) -> None:
    assert refused(read_files, [tmp_path / "absent"]).code == "no-such-file"


ELF, PE = ElfForge().build(), PeForge().build()


def found(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in find_binaries(root)]


def test_names() -> None:
    native = ("libfoo.so", "libfoo.so.1", "libfoo.so.11.2.3", "_C.cpython-311-x86_64-linux-gnu.so", "_C.pyd")
    for name in (*native, "CUDART64_12.DLL"):
        assert is_native_name(name), name
    for name in ("notes.so.txt", "kernel.o", "kernel.cubin", ".so", "also"):
        assert not is_native_name(name), name


def test_by_name_and_magic_in_a_stable_order(tmp_path: Path) -> None:
    put(tmp_path, {"z/_C.pyd": PE, "libm.so": b"GROUP ( /lib/libm.so.6 )"})
    put(tmp_path, dict.fromkeys(("a/b/libc10.so", "a/libtorch.so.2", "a/x.py", "b.so"), ELF))
    assert found(tmp_path) == ["b.so", "a/libtorch.so.2", "a/b/libc10.so", "z/_C.pyd"]


@pytest.mark.parametrize("row", data(__file__)["links"].values(), ids=data(__file__)["links"])
def test_links(tmp_path: Path, row: dict[str, Any]) -> None:
    put(tmp_path, dict.fromkeys(row["files"], ELF))
    for name, target in row["links"].items():
        (tmp_path / name).symlink_to(f"{tmp_path}{target}" if target.startswith("/") else target)
    assert found(tmp_path / row["root"]) == list(row["found"])


def test_a_root_that_is_no_folder(tmp_path: Path) -> None:
    put(tmp_path, {"file": b""})
    for root in (tmp_path / "absent", tmp_path / "file"):
        with pytest.raises(BinaryError, match="cannot be listed"):
            list(find_binaries(root))


def test_folders_that_cannot_be_listed_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {"locked/a.so": ELF, "open/b.so": ELF})
    real = os.scandir

    def scandir(path: Path) -> object:
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    heard: list[tuple[str, str | None]] = []
    paths = list(find_binaries(tmp_path, lambda path, error: heard.append((path.name, error.strerror))))
    assert [path.name for path in paths] == ["b.so"]
    assert heard == [("locked", "Permission denied")]


def test_an_empty_file_of_a_librarys_name_is_no_silence(tmp_path: Path) -> None:
    put(tmp_path, {"a/_C.so": b"", "b.so": ELF, "c.py": b"", "libm.so": b"GROUP ( libm.so.6 )"})
    assert found(tmp_path) == ["b.so", "a/_C.so"]
    assert read_files([tmp_path]).unreadable == ((str(tmp_path / "a/_C.so"), "an empty file"),)


def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
    """The system refuses to look at `cwd.so`, as it does even for root below /proc."""

    def call(path: Path, *given: Any, **how: Any) -> Any:
        if path.name == "cwd.so" and how.get("follow_symlinks", True):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *given, **how)

    return call


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_may_not_be_read_is_skipped_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    put(tmp_path, {"a.so": ELF, "z.so": ELF, "other/x.so": ELF})
    if kind == "link":
        (tmp_path / "cwd.so").symlink_to(tmp_path / "other")
    else:
        put(tmp_path, {"cwd.so": ELF})
    for name in ("stat", "open"):
        monkeypatch.setattr(Path, name, refusing(getattr(Path, name)))
    read = read_files([tmp_path])
    assert [Path(item.path).name for item in read.binaries] == ["a.so", "z.so", "x.so"]
    assert read.skipped == ((str(tmp_path / "cwd.so"), "cannot be read: Permission denied"),)


def test_views_of_the_system_are_not_entered_from_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, {"proc/1/a.so": ELF, "usr/proc/b.so": ELF, "usr/c.so": ELF})
    (tmp_path / "usr/sideways").symlink_to(tmp_path / "proc/1")
    monkeypatch.setattr(paths, "_VIEWS", (tmp_path / "proc",))
    assert found(tmp_path) == ["usr/c.so", "usr/proc/b.so"]
    assert found(tmp_path / "proc") == ["1/a.so"], "whoever names it gets it"
    assert found(tmp_path / "proc/1") == ["a.so"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_process_in_proc_can_be_walked_without_an_error() -> None:
    """Its links to cwd, root and exe may be refused, or lead above the start."""
    assert isinstance(read_files([Path("/proc/1/task")]), NativeFiles)
