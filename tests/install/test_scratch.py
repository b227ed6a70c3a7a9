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
from tests.tables import data

FILES, LINKS = (data(__file__)[name] for name in ("files", "links"))


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_what_is_copied_and_what_is_not(tmp_path: Path) -> None:
    """In a checkout that nobody may write to, whose setup.py writes its version.py anew."""
    source = put(tmp_path / "source", dict.fromkeys((*FILES["copied"], *FILES["left"]), ""))
    for path in sorted(source.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    copy_source(source, tmp_path / "copy")
    assert names(tmp_path / "copy") == [*FILES["copied"]]
    assert all(path.stat().st_mode & 0o200 for path in (tmp_path / "copy").rglob("*"))
    for path in (source, *filter(Path.is_dir, source.rglob("*"))):
        path.chmod(0o755)


def test_a_copy_has_the_name_of_its_folder_where_torch_takes_it() -> None:
    named = {name: name_of_copy(Path(name)) for name in ("HTGS_1.0", "search", "two words", "/")}
    assert named == {"HTGS_1.0": "HTGS_1.0", **dict.fromkeys(("search", "two words", "/"), "source")}


def test_links_inside_stay_links_and_those_that_lead_out_are_left_out(tmp_path: Path) -> None:
    """Whatever way they tell: through a folder outside, through another link, absolute, to nothing yet, to a device."""
    outside = put(tmp_path / "outside", {"id": "private", "deep/more.hpp": "private"})
    source, copy = put(tmp_path / "source", {"setup.py": "", "real/a.h": "a"}), tmp_path / "copy"
    (outside / "back").symlink_to(source)
    inside, absolute, out = (
        {name: target.format(outside=outside, source=source) for name, target in LINKS[kind].items()}
        for kind in ("inside", "absolute", "out")
    )
    for name, target in {**inside, **absolute, **out}.items():
        (source / name).symlink_to(target)

    assert {item.path for item in copy_source(source, copy)} == set(out)
    assert edited_contents(copy, [PlannedEdit("x", ("up/more.hpp", "file"), "", "")]) == {}
    assert all(path.resolve().is_relative_to(copy) for path in copy.rglob("*"))
    targets = {name: str((copy / name).readlink()) for name in (*inside, *absolute)}
    assert targets == LINKS["copied"]


def test_secrets_are_in_no_copy(tmp_path: Path) -> None:
    secret = FILES["secret"]
    source = put(tmp_path / "source", {"setup.py": "", "src/keys.cu": "", **dict.fromkeys(secret, "private")})
    (source / "settings").symlink_to(".env")
    left_out = copy_source(source, tmp_path / "copy")
    assert names(tmp_path / "copy") == ["settings", "setup.py", "src/keys.cu"]
    assert not (tmp_path / "copy" / "settings").exists()
    assert len(missed(left_out)) == len(secret)
    copy_source(source / "a" / ".aws", tmp_path / "named")
    assert names(tmp_path / "named") == ["credentials"], "it was asked for by its name"


@pytest.mark.parametrize("bad", ["search-results", "my files"])
def test_a_path_torch_misreads_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    """``arch`` turns its architecture flags off; and it calls the compiler as it stands in CXX, whose script lies in there."""
    folder = tmp_path / bad
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("SPLATFIX_CACHE", str(tmp_path / "cache"))
    with scratch_folder() as scratch:
        assert not scratch.root.is_relative_to(folder) and scratch.wheels.is_dir()
    assert not scratch.root.exists()
    if "arch" in bad:
        error = refused(scratch_folder(folder).__enter__)
        assert error.code == "no-scratch" and "TMPDIR" in error.todo[0].line()
    else:
        with scratch_folder(folder) as scratch:
            assert scratch.root.parent == folder.resolve(), "where there is no other, it serves"


def test_full_disks_and_closed_folders_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = put(tmp_path / "source", {"setup.py": ""})
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy2", Mock(side_effect=full))
        assert refused(copy_source, source, tmp_path / "copy").code == "disk-full"
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
    repository = put(tmp_path / "repo", dict.fromkeys((*FILES["repository"], *FILES["kept"]), ""))
    put(repository, {"bindings/torch/setup.py": FILES["reaches_up"]})
    (repository / "output").symlink_to(put(tmp_path / "away", {"scene.ply": "x"}))
    (repository / "inside").symlink_to("src")
    for large in ("garden/images/1.raw", "weights.pth"):
        os.truncate(repository / large, 33 << 20)
    left_out = copy_source(repository / "bindings" / "torch", tmp_path / "copy", repository)
    assert names(tmp_path / "copy") == [*FILES["repository"]]
    assert (tmp_path / "copy" / "inside").readlink() == Path("src")
    assert [item.path for item in left_out] == ["datasets", "env", "garden", "output", "weights.pth"]


def test_too_much_to_copy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatfix.facts.source.copying._MOST_FILES", 3)
    source = put(tmp_path / "source", {"setup.py": "", "films/1": "", "films/2": "", "films/3": ""})
    error = refused(copy_source, source, tmp_path / "copy")
    assert error.code == "source-too-large" and "films" in error.what
    with (source / "endless").open("wb") as file:
        file.truncate(1 << 40)
    assert "endless" in refused(copy_source, source, tmp_path / "other").what
    assert not (tmp_path / "other" / "endless").exists(), "it is refused before it is copied"
