"""Folders that a person names."""

from pathlib import Path

import pytest

from splatfix.core.reading import resolved_folder
from splatfix.facts.checkout import (
    as_typed,
    has_build_file,
    holds_everything,
    is_clone,
    is_empty,
    packages_in,
    read_package,
    source_texts,
    subfolders,
    telling_paths,
)
from tests.files import put


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = ("train.py", "submodules/knn/setup.py", "pkg/__init__.py", "a.cu", "docs/b.cu", ".git/HEAD")
    return put(tmp_path / "stack", dict.fromkeys(names, "from . import _C\n_C.run()\n"))


def test_a_folder_is_resolved_or_it_is_none(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert resolved_folder(str(link)) == folder.resolve()
    assert resolved_folder(str(folder / "train.py")) is None
    assert resolved_folder(str(folder / "nowhere")) is None


def test_a_path_is_named_from_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert as_typed(folder / "submodules") == "./submodules"
    assert as_typed(folder) == str(folder)


def test_the_whole_disk_and_home_are_known() -> None:
    assert holds_everything(Path(Path.home().anchor)) == "the root of a disk"
    assert holds_everything(Path.home().resolve()) == "your home folder"
    assert holds_everything(Path.home().resolve() / "x") == ""


def test_what_a_folder_is(folder: Path) -> None:
    assert is_clone(folder) and not is_clone(folder / "pkg")
    assert has_build_file(folder / "submodules/knn") and not has_build_file(folder)
    (folder / "submodules/glm/.git").mkdir(parents=True)
    assert is_empty(folder / "submodules/glm") and is_empty(folder / "nowhere") and not is_empty(folder)
    assert [item.name for item in subfolders(folder)] == ["docs", "pkg", "submodules"]
    assert {"train.py", "submodules/knn"} <= set(telling_paths(folder))


def test_packages_and_texts_of_a_source(folder: Path) -> None:
    assert packages_in(folder) == ("pkg",)
    assert read_package(folder, "pkg").exports == ("run",)
    with pytest.raises(ValueError, match="no such file"):
        read_package(folder, "nothing")
    put(folder, {"ext/tbb/examples/fib.cpp": "int main() {}"})  # of a library: nobody builds it
    names = ["a.cu", "train.py", "submodules/knn/setup.py", "pkg/__init__.py"]
    assert [name for name, _ in source_texts(folder)] == names
