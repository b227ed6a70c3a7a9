"""The one bounded reader: whatever stands in the place of a file, it answers at once."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.core.files import object_in
from splatfix.core.reading import Unread, read_bytes, read_start, read_text
from tests.hostile.bad_files import CONTENTS, bad_files

NO_FILES = [(name, put) for name, put in bad_files() if name not in CONTENTS]


@pytest.mark.parametrize(("name", "put"), NO_FILES, ids=[name for name, _ in NO_FILES])
def test_no_regular_file(name: str, put: Callable[[Path], None], tmp_path: Path) -> None:
    put(tmp_path / "x")
    found = read_text(tmp_path / "x")
    if name == "link-to-nowhere":
        assert found is None
    elif name == "link-to-pagemap":
        # what the kernel gives of it depends on who asks
        assert found is None or isinstance(found, (str, Unread))
    else:
        assert isinstance(found, Unread) and found.path == str(tmp_path / "x") and found.reason
    assert len(read_start(tmp_path / "x", 2)) <= 2


@pytest.mark.parametrize(("name", "content"), CONTENTS.items(), ids=list(CONTENTS))
def test_any_content_is_text(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    found = read_text(tmp_path / "x")
    assert isinstance(found, str) and "\r" not in found and not found.startswith("\ufeff")
    found.encode()


def test_the_limit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * (2 << 20))
    assert read_bytes(path, 2 << 20) == b"x" * (2 << 20)
    assert read_bytes(path, 1 << 20) == Unread(str(path), "it is larger than 1 MiB, the most that is read")


def test_sizes_are_not_believed(tmp_path: Path) -> None:
    """Files of the kernel have no size."""
    (tmp_path / "x").symlink_to("/proc/self/status")
    text = read_text(tmp_path / "x")
    assert isinstance(text, str) and "VmRSS" in text
    assert isinstance(read_bytes(tmp_path / "x", 10), Unread)


@pytest.mark.parametrize("name", ["no/such", "a\0b", "x" * 300, "\udcff\ud800", "x/y"])
def test_names_of_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    assert not isinstance(read_bytes(tmp_path / name), bytes) and read_start(tmp_path / name, 2) == b""


def test_a_pipe_that_comes_after_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x")
    before = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(os, "stat", lambda _: before)
    assert read_bytes(path) == Unread(str(path), "it is a named pipe, not a file")


def test_an_object_of_a_file_is_empty_where_it_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    assert object_in(path) == {}
    for text, expected in (('{"a": 1}', {"a": 1}), ("[1]", {}), ("{", {})):
        path.write_text(text)
        assert object_in(path) == expected
    path.write_text('{"a": "long"}')
    monkeypatch.setattr("splatfix.core.files.MOST_JSON", 5)
    assert object_in(path) == {}
