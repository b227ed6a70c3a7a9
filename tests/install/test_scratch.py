"""What a build gets of a source, and where; that killed runs leave nothing is shown in tests/core."""

import errno
import os
import shutil
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from splatfix.facts.source.copying import SourceFiles, copy_source, missed
from splatfix.install.scratch import edited_contents, name_of_copy, scratch_folder
from splatfix.plan.edits import PlannedEdit
from tests.files import put
from tests.plan.machines import refused


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_what_is_copied_and_what_is_not(tmp_path: Path) -> None:
    source = put(
        tmp_path / "source",
        {
            "setup.py": "",
            ".git/HEAD": "",
            "third_party/glm/.git": "gitdir: elsewhere",
            "third_party/glm/build/cmake.txt": "a build folder that is source",
            "build/lib/old.py": "",
            "dist/old.whl": "",
            "pkg/__init__.py": "",
            "pkg/__pycache__/x.pyc": "",
            "pkg/_C.cpython-311-x86_64-linux-gnu.so": "stale",
            "pkg/libvendor.so": "shipped on purpose",
            "pkg.egg-info/PKG-INFO": "",
        },
    )
    copy_source(source, tmp_path / "copy")
    assert names(tmp_path / "copy") == [
        "pkg/__init__.py",
        "pkg/libvendor.so",
        "setup.py",
        "third_party/glm/build/cmake.txt",
    ]


@pytest.mark.parametrize(
    ("folder", "name"),
    [("HTGS_1.0", "HTGS_1.0"), ("search", "source"), ("two words", "source"), ("/", "source")],
)
def test_a_copy_has_the_name_of_its_folder_where_torch_takes_it(folder: str, name: str) -> None:
    assert name_of_copy(Path(folder)) == name


def test_links_inside_stay_links_and_those_that_lead_out_are_left_out(tmp_path: Path) -> None:
    """Whatever way they tell: through a folder outside, through another link, absolute, to nothing yet, to a device."""
    outside = put(tmp_path / "outside", {"id": "private", "deep/more.hpp": "private"})
    source = put(tmp_path / "source", {"setup.py": "", "real/a.h": "a"})
    (outside / "back").symlink_to(source)
    inside = {"inside": "real", "dangling": "nowhere", "around": "../source/real", "twice": "around/a.h"}
    absolute = {"absolute": source / "real" / "a.h", "all": source, "through": outside / "back" / "real"}
    out = {
        "up": "../outside/deep",
        "chain": "folder/id",
        "above": "..",
        "gone": "/nowhere",
        "zero": "/dev/zero",
    }
    out |= {"real/deep": "../../outside/id", "self": "/proc/self/environ", "loop": "/dev/fd/../../loop"}
    out |= {"folder": str(outside), "file": f"{outside}/id"}
    for name, target in {**inside, **absolute, **out}.items():
        (source / name).symlink_to(target)

    copy = tmp_path / "copy"
    left_out = copy_source(source, copy)

    assert {item.path for item in left_out} == set(out)
    assert edited_contents(copy, [PlannedEdit("x", ("up/more.hpp", "file"), "", "")]) == {}
    assert all(path.resolve().is_relative_to(copy) for path in copy.rglob("*"))
    targets = {name: (copy / name).readlink() for name in (*inside, *absolute)}
    real = dict.fromkeys(("inside", "around", "through"), Path("real"))
    file = dict.fromkeys(("absolute", "twice"), Path("real/a.h"))
    assert targets == {**real, **file, "dangling": Path("nowhere"), "all": Path()}


def test_secrets_are_in_no_copy(tmp_path: Path) -> None:
    secret = (".env", ".ENV.local", "deep/id_rsa", "site.pem", "a/.aws/credentials", "Secrets.toml", "x.key")
    source = put(tmp_path / "source", {"setup.py": "", "src/keys.cu": "", **dict.fromkeys(secret, "private")})
    (source / "settings").symlink_to(".env")
    left_out = copy_source(source, tmp_path / "copy")
    assert names(tmp_path / "copy") == ["settings", "setup.py", "src/keys.cu"]
    assert not (tmp_path / "copy" / "settings").exists()
    assert len(missed(left_out)) == len(secret)
    copy_source(source / "a" / ".aws", tmp_path / "named")
    assert names(tmp_path / "named") == ["credentials"], "it was asked for by its name"


def test_the_path_never_contains_arch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "search-results"
    bad.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(bad))
    with scratch_folder() as scratch:
        assert "arch" not in str(scratch.source)
        assert scratch.wheels.is_dir()
    assert not scratch.root.exists()
    error = refused(scratch_folder(bad).__enter__)
    assert error.code == "no-scratch" and "TMPDIR" in error.todo[0].line()


def test_a_path_with_a_blank_is_the_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's builder calls the compiler as it stands in CXX, and a compiler cache's script for it lies in there."""
    bad, cache = tmp_path / "my files", tmp_path / "cache"
    bad.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(bad))
    monkeypatch.setenv("SPLATFIX_CACHE", str(cache))
    with scratch_folder() as scratch:
        assert " " not in str(scratch.source)
    with scratch_folder(bad) as scratch:
        assert scratch.root.parent == bad.resolve(), "where there is no other, it serves"


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = put(tmp_path / "source", {"setup.py": ""})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copy2", full)
    assert refused(copy_source, source, tmp_path / "copy").code == "disk-full"


def test_a_folder_that_cannot_be_listed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = Mock(side_effect=PermissionError(errno.EACCES, "Permission denied", "data"))
    monkeypatch.setattr(os, "scandir", denied)
    problem = refused(list, SourceFiles(tmp_path).walk())
    assert problem.code == "cannot-copy" and "data cannot be copied" in problem.what


def test_the_same_source_gets_the_same_path(tmp_path: Path) -> None:
    with scratch_folder(tmp_path, source="/a") as first:
        pass
    with scratch_folder(tmp_path, source="/a") as again, scratch_folder(tmp_path, source="/b") as other:
        assert again.root == first.root != other.root
        with scratch_folder(tmp_path, source="/a") as beside:
            assert beside.root != again.root, "two runs shared one scratch folder"
    assert list(tmp_path.iterdir()) == []


def test_a_repository_is_copied_without_what_is_no_source(tmp_path: Path) -> None:
    """An extension that reads ../../ finds it; what people keep in a checkout stays where it is, and is named."""
    away = put(tmp_path / "away", {"scene.ply": "x"})
    repository = put(
        tmp_path / "repo",
        {
            "CMakeLists.txt": "",
            "bindings/torch/setup.py": "open('../../CMakeLists.txt'); package_data=['scenes/one.json']",
            "bindings/torch/build/lib/old.py": "",
            "src/api.cu": "",
            "src/data/table.bin": "small, and not in the top folder",
            "datasets/garden/points.ply": "",
            "garden/images/1.raw": "",
            "assets/1.raw": "small",
            "data/loader.py": "a folder of code that is called so",
            "scenes/one.json": "",
            "env/pyvenv.cfg": "",
            "env/lib/x.py": "",
            ".git/HEAD": "",
            "build/x.o": "",
        },
    )
    (repository / "output").symlink_to(away)
    (repository / "inside").symlink_to("src")
    (repository / "weights.pth").touch()
    os.truncate(repository / "garden" / "images" / "1.raw", 33 << 20)
    os.truncate(repository / "weights.pth", 33 << 20)
    left_out = copy_source(repository / "bindings" / "torch", tmp_path / "copy", repository)
    assert names(tmp_path / "copy") == [
        *("CMakeLists.txt", "assets/1.raw", "bindings/torch/setup.py", "data/loader.py", "scenes/one.json"),
        *("src/api.cu", "src/data/table.bin"),
    ]
    assert (tmp_path / "copy" / "inside").readlink() == Path("src")
    assert [item.path for item in left_out] == ["datasets", "env", "garden", "output", "weights.pth"]


def test_a_read_only_source_is_copied_to_be_written(tmp_path: Path) -> None:
    """A setup.py that writes its version.py anew, in a checkout that nobody may write to."""
    source = put(tmp_path / "source", {"setup.py": "", "pkg/version.py": "1"})
    for path in sorted(source.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    copy_source(source, tmp_path / "copy")
    assert all(path.stat().st_mode & 0o200 for path in (tmp_path / "copy").rglob("*"))
    (source / "pkg").chmod(0o755)


def test_too_much_to_copy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatfix.facts.source.copying._MOST_FILES", 3)
    source = put(tmp_path / "source", {"setup.py": "", "films/1": "", "films/2": "", "films/3": ""})
    error = refused(copy_source, source, tmp_path / "copy")
    assert error.code == "source-too-large" and "films" in error.what
    with (source / "endless").open("wb") as file:
        file.truncate(1 << 40)
    assert "endless" in refused(copy_source, source, tmp_path / "other").what
    assert not (tmp_path / "other" / "endless").exists(), "it is refused before it is copied"
