"""Folders of strangers: budgets for bytes, tokens, entries and files, each named where it ran out."""

from pathlib import Path

import pytest

from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.facts.checkout import read_source
from splatfix.facts.source import reader as limits
from splatfix.facts.source.checkout import read_checkout, read_pins
from splatfix.facts.source.reader import FolderReader, NotPython
from tests.files import put
from tests.hostile.bad_files import bad_files, replace
from tests.hostile.checkouts import FILES, PYTHON, SETUP, TOML, write_checkout

DEEP = ("minuses", "many-minuses", "nots", "lambdas", "ifs", "powers", "elifs", "attributes", "calls", "sum")


@pytest.mark.parametrize("name", PYTHON)
def test_python_is_read_or_refused(name: str) -> None:
    try:
        FolderReader().parse(PYTHON[name])
        assert name not in DEEP
    except NotPython as error:
        assert str(error)


def test_python_is_counted_over_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_MOST_TOKENS_IN_ALL", 25)
    reader = FolderReader()
    for number in range(3):
        reader.python(tmp_path / f"{number}.py", "a\n" * 10)
    (left_out,) = reader.left_out
    assert left_out.path == str(tmp_path / "2.py") and "25 words and signs" in left_out.reason


def test_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_MOST_IN_FOLDER", 5)
    for number in range(9):
        (tmp_path / f"{number}.py").touch()
    reader = FolderReader()
    assert len(reader.children(tmp_path)) == 5
    assert [item.path for item in reader.left_out] == [str(tmp_path)]
    assert "more than 5 entries" in reader.left_out[0].reason


def test_too_many_sources_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_MOST_FILES", 3)
    monkeypatch.setattr(limits, "MOST_SOURCES", 25)
    for number in range(4):
        (tmp_path / f"{number}.cu").write_text("0123456789")
    reader = FolderReader()
    files = list(reader.files_below(tmp_path, (".cu",), depth=1))
    assert len(files) == 3 and "more than 3 sources" in reader.left_out[0].reason
    assert [reader.text(file) for file in files] == ["0123456789", "0123456789", ""]
    assert "were read before it" in reader.left_out[1].reason


def test_every_file_of_a_checkout_is_a_pipe(tmp_path: Path) -> None:
    """One bad file is one entry, and the rest is read."""
    pipe = dict(bad_files())["fifo"]
    unopened = ("CMakeLists.txt", "splat_probe/__init__.py", ".git/packed-refs", ".git/refs/heads/main")
    opened = set(FILES).difference(unopened)
    for name in opened:
        replace(tmp_path / name, pipe)
    put(tmp_path, {"fine/setup.py": SETUP, "broken/setup.py": SETUP})
    broken = {f"broken/{name}" for name in ("pyproject.toml", "setup.cfg", "ext.cu", "ext.h")}
    for name in broken:
        pipe(tmp_path / name)
    found = read_checkout(tmp_path, source_patterns()).value
    unread = [Path(item.path).relative_to(tmp_path).as_posix() for item in found.unreadable]
    assert unread == sorted(broken | opened - {"ext.cu", "ext.h", "submodules/simple-knn/ext.cu"})
    assert [item.path for item in found.sources] == ["broken", "fine"]


@pytest.mark.parametrize("name", TOML)
def test_any_project_file_is_read(name: str, tmp_path: Path) -> None:
    write_checkout(tmp_path)
    (tmp_path / "pyproject.toml").write_text(TOML[name], encoding="utf-8", errors="surrogateescape")
    found = read_source(tmp_path)
    assert (found.name, found.python) == ("splat_probe", found.python)
    assert list(read_pins(tmp_path))
    if name in ("project-number", "build-system-list", "build-system.requires-truth"):
        assert "pyproject.toml cannot be read: " in found.error


def test_a_setup_that_is_no_python_is_an_extension_still(tmp_path: Path) -> None:
    write_checkout(tmp_path)
    (tmp_path / "setup.py").write_text(SETUP + "x = " + "-" * 20_000 + "1")
    found = read_checkout(tmp_path, ()).value
    assert "nested too deeply" in found.sources[0].source.error
