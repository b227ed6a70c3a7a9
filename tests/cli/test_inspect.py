"""``splatfix inspect`` on libraries whose content is known."""

import json
from pathlib import Path

import pytest

from splatfix.binaries import Binary, EntryKind, Fatbin, FatbinEntry
from splatfix.context.inspection import Inspection, inspect_files
from splatfix.core.errors import Exit
from splatfix.facts import NativeFiles
from splatfix.report.inspection import InspectionDocument, show
from tests.conftest import Splatfix
from tests.screens import on_screen

posix = pytest.mark.skipif(not Path("/usr/bin/env").exists(), reason="needs a POSIX system")


@posix
def test_without_a_target_it_only_shows(splatfix: Splatfix) -> None:
    done = splatfix("inspect", "/usr/bin/env")
    assert done.returncode == 0
    assert "no GPU code" in done.stdout


@posix
def test_a_damaged_file_does_not_hide_the_good_ones(splatfix: Splatfix, tmp_path: Path) -> None:
    damaged, empty = tmp_path / "lib.so", tmp_path / "_C.so"
    damaged.write_bytes(Path("/usr/bin/env").resolve().read_bytes()[:500])
    empty.touch()
    done = splatfix("inspect", tmp_path, "/usr/bin/env", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert [item["path"] for item in document["files"]] == ["/usr/bin/env"]
    assert {item["path"] for item in document["unreadable"]} == {str(damaged), str(empty)}
    assert splatfix("inspect", empty).returncode == 2


def test_no_native_file_is_no_verdict(splatfix: Splatfix, tmp_path: Path) -> None:
    """It showed a question mark and ended in 0."""
    assert splatfix("inspect", tmp_path).returncode == 3


ENTRY = FatbinEntry(EntryKind.SASS, "sm_120", None, None, 1, debug=False)
LIBRARY = Binary("/x/a.so", "elf", "x86_64", 1, (Fatbin(0, ".nv_fatbin", (ENTRY,)),))


def shown(result: Inspection, *, verbose: bool = False) -> list[str]:
    return on_screen(show, InspectionDocument(result), width=120, verbose=verbose).splitlines()


def test_unread_packages_are_counted_verdict_stays_open() -> None:
    locked = NativeFiles((LIBRARY,), (), (("/x/locked", "Permission denied"), ("/x/b.so", "the same")))
    for native, targets, verdict in (
        (NativeFiles((LIBRARY,), ()), ("sm_120",), Exit.OK),
        (locked, ("sm_120",), Exit.UNDETERMINED),
        (locked, (), Exit.OK),
        (locked, ("sm_90",), Exit.FAILURE),
    ):
        assert inspect_files(native, targets).exit_code is verdict
    result = inspect_files(locked, ("sm_120",))
    assert [item["path"] for item in InspectionDocument(result).to_json()["skipped"]] == [
        "/x/locked",
        "/x/b.so",
    ]
    assert "? /x/b.so: the same" in shown(result, verbose=True)
    assert "Files without GPU code, and all that were not read: -v" in shown(result)


def test_one_file_and_two_targets() -> None:
    result = inspect_files(NativeFiles((LIBRARY,), ()), ("sm_120", "sm_90"))
    assert shown(result)[:2] == [
        "✓ sm_120: 1 of 1 with GPU code can run there",
        "✗ sm_90: 0 of 1 with GPU code can run there",
    ]
