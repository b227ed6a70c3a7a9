"""``splatfix inspect`` on libraries whose content is known."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from splatfix.binaries import Binary, EntryKind, Fatbin, FatbinEntry
from splatfix.checks import inspection as checks
from splatfix.core.errors import Exit
from splatfix.facts import NativeFiles
from splatfix.report import inspection

Splatfix = Callable[..., "subprocess.CompletedProcess[str]"]

posix = pytest.mark.skipif(not Path("/usr/bin/env").exists(), reason="needs a POSIX system")


@posix
def test_a_library_without_gpu_code_could_not_be_judged(splatfix: Splatfix) -> None:
    """Nothing in it contradicts the target, and nothing in it shows that it runs there."""
    done = splatfix("inspect", "/usr/bin/env", "--target", "sm_120", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 3 == document["exit_code"]
    (file,) = document["files"]
    assert file["format"] == "elf"
    assert file["fatbins"] == []
    assert file["verdicts"]["sm_120"]["usable"] is None


@posix
def test_without_a_target_it_only_shows(splatfix: Splatfix) -> None:
    done = splatfix("inspect", "/usr/bin/env")
    assert done.returncode == 0
    assert "no GPU code" in done.stdout


def test_a_folder_with_a_damaged_library(splatfix: Splatfix, tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(b"\x7fELF\x02\x01\x01" + b"\xff" * 60)
    done = splatfix("inspect", str(tmp_path), "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert document["unreadable"][0]["path"].endswith("lib.so")


@posix
def test_a_damaged_file_does_not_hide_the_good_ones(splatfix: Splatfix, tmp_path: Path) -> None:
    damaged = tmp_path / "lib.so"
    damaged.write_bytes(Path("/usr/bin/env").resolve().read_bytes()[:500])
    done = splatfix("inspect", str(damaged), "/usr/bin/env", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert [item["path"] for item in document["files"]] == ["/usr/bin/env"]
    assert document["unreadable"][0]["path"] == str(damaged)


@posix
def test_an_empty_library_in_a_folder_is_named(splatfix: Splatfix, tmp_path: Path) -> None:
    (tmp_path / "_C.so").write_bytes(b"")
    done = splatfix("inspect", str(tmp_path))
    assert done.returncode == 1
    assert "_C.so: an empty file" in done.stdout
    alone = splatfix("inspect", str(tmp_path / "_C.so"))
    assert (alone.returncode, "an empty file" in alone.stderr) == (2, True)


def test_no_native_file_is_no_verdict(splatfix: Splatfix, tmp_path: Path) -> None:
    """It showed a question mark and ended in 0."""
    done = splatfix("inspect", str(tmp_path))
    assert (done.returncode, "? No native files" in done.stdout) == (3, True)


def test_unread_packages_are_counted_verdict_stays_open() -> None:
    entry = FatbinEntry(EntryKind.SASS, "sm_120", None, None, 1, debug=False)
    binary = Binary("/x/a.so", "elf", "x86_64", 1, (Fatbin(0, ".nv_fatbin", (entry,)),))
    native = NativeFiles(
        (binary,), (), (("/x/locked", "cannot be read: Permission denied"), ("/x/b.so", "the same"))
    )
    whole = NativeFiles((binary,), ())
    assert checks.verdict(checks.inspect_files(whole, ("sm_120",))) is Exit.OK
    result = checks.inspect_files(native, ("sm_120",))
    assert checks.verdict(result) is Exit.UNDETERMINED
    assert checks.verdict(checks.inspect_files(native, ())) is Exit.OK
    assert checks.verdict(checks.inspect_files(native, ("sm_90",))) is Exit.FAILURE
    for verbose, words in (
        (False, "2 paths could not be read, such as /x/locked"),
        (True, "? /x/b.so: the same"),
    ):
        stream = io.StringIO()
        inspection.show(Console(file=stream, width=120), result, verbose=verbose)
        assert words in stream.getvalue()
    document = inspection.document(result)
    assert [item["path"] for item in document["skipped"]] == ["/x/locked", "/x/b.so"]


def test_one_file_and_two_targets() -> None:
    entry = FatbinEntry(EntryKind.SASS, "sm_120", None, None, 1, debug=False)
    binary = Binary("/x/a.so", "elf", "x86_64", 1, (Fatbin(0, ".nv_fatbin", (entry,)),))
    result = checks.inspect_files(NativeFiles((binary,), ()), ("sm_120", "sm_90"))
    stream = io.StringIO()
    inspection.show(Console(file=stream, width=120), result)
    assert stream.getvalue().splitlines()[:2] == [
        "✓ The file can run on sm_120",
        "✗ The file cannot run on sm_90",
    ]
