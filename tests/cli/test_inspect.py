"""``splatfix inspect`` on libraries whose content is known."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

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
    assert file["containers"] == []
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
