"""Folders that a person names."""

from pathlib import Path

import pytest

from splatfix.core.reading import resolved_folder
from splatfix.facts import checkout as facts
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
    assert facts.as_typed(folder / "submodules") == "./submodules"
    assert facts.as_typed(folder) == str(folder)


def test_the_whole_disk_and_home_are_known() -> None:
    assert facts.holds_everything(Path(Path.home().anchor)) == "the root of a disk"
    assert facts.holds_everything(Path.home().resolve()) == "your home folder"
    assert facts.holds_everything(Path.home().resolve() / "x") == ""


def test_what_a_folder_is(folder: Path) -> None:
    assert facts.is_clone(folder) and not facts.is_clone(folder / "pkg")
    assert facts.has_build_file(folder / "submodules/knn") and not facts.has_build_file(folder)
    (folder / "submodules/glm/.git").mkdir(parents=True)
    assert facts.is_empty(folder / "submodules/glm") and facts.is_empty(folder / "nowhere")
    assert not facts.is_empty(folder)
    assert [item.name for item in facts.subfolders(folder)] == ["docs", "pkg", "submodules"]
    assert {"train.py", "submodules/knn"} <= set(facts.telling_paths(folder))


def test_packages_and_texts_of_a_source(folder: Path) -> None:
    assert facts.packages_in(folder) == ("pkg",)
    assert facts.read_package(folder, "pkg").exports == ("run",)
    with pytest.raises(ValueError, match="no such file"):
        facts.read_package(folder, "nothing")
    put(folder, {"ext/tbb/examples/fib.cpp": "int main() {}"})  # of a library: nobody builds it
    names = ["a.cu", "train.py", "submodules/knn/setup.py", "pkg/__init__.py"]
    assert [name for name, _ in facts.source_texts(folder)] == names
