"""Files are written whole or not at all."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from splatfix.core import files
from splatfix.core.errors import Exit
from tests.plan.machines import refused


def test_json_round_trip_and_final_newline(tmp_path: Path) -> None:
    files.write_json(tmp_path / "deep" / "a.json", {"b": [1, "ü"]})
    text = (tmp_path / "deep" / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"b": [1, "ü"]} == files.read_json(tmp_path / "deep" / "a.json", "x")
    assert text.endswith("}\n")
    assert "ü" in text


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError(28, "No space left on device")))
    target = tmp_path / "a.json"
    target.write_text("old")
    error = refused(files.write_text, target, "new")
    assert error.code == "cannot-write" and "No space left" in error.what
    assert error.meaning == "a.json is as it was." and target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = refused(files.write_text, tmp_path / "file" / "below", "x")
    assert (error.exit_code, error.meaning) == (Exit.UNDETERMINED, "There is no below.")


def test_nan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        files.dumps({"a": float("nan")})


@pytest.mark.skipif(os.name != "posix", reason="devices and pipes as POSIX has them")
def test_devices_and_pipes_are_written_into_and_links_to_them_replaced(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    assert refused(files.write_text, pipe, "waits for no reader").code == "cannot-write"
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.write_json(pipe, {"a": 1})
        assert json.loads(os.read(reader, 100)) == {"a": 1}
        for target in (pipe, os.devnull, "/dev/full", "nowhere", tmp_path / "kept"):
            link.unlink(missing_ok=True)
            link.symlink_to(target)
            files.write_text(link, "whole")
            assert not link.is_symlink() and link.read_text() == "whole"
        link.unlink()
    finally:
        os.close(reader)
    files.write_text(Path(os.devnull), "gone")
    assert not Path(os.devnull).is_file() and [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="open files have no names")
def test_the_system_s_names_of_open_files_are_not_replaced(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        log.write("before\n")
        log.flush()
        for name in (f"/dev/fd/{log.fileno()}", f"/proc/self/fd/{log.fileno()}"):
            files.write_text(Path(name), "written\n")
    assert (tmp_path / "log").read_text() == "before\nwritten\nwritten\n"


def test_what_was_there_is_moved_aside_each_time_anew(tmp_path: Path) -> None:
    for count, folder in enumerate(("previous", "previous-2", "previous-3")):
        (tmp_path / "series").write_text(str(count))
        (tmp_path / "theirs").write_text("stays")
        files.set_aside(tmp_path, ("series", "summary"))
        assert (tmp_path / folder / "series").read_text() == str(count)
        assert not (tmp_path / "series").exists() and (tmp_path / "theirs").exists()
    (tmp_path / "summary").symlink_to("not/there/yet")
    files.set_aside(tmp_path, ("series", "summary"))
    assert (tmp_path / "previous-4" / "summary").is_symlink() and not (tmp_path / "summary").is_symlink()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders")
def test_what_has_no_end_has_no_digest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("pipe", "sparse"):
        with pytest.raises(OSError, match="it is"):
            files.sha256_of(tmp_path / name)


def test_the_longest_name_there_is(tmp_path: Path) -> None:
    for data in (b"old", b"new"):
        files.write_bytes(tmp_path / ("n" * 255), data)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"new"]
