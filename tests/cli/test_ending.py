"""How commands end that do not end well: wrong words, a reader that has gone, a current folder that is no more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Splatfix

COMMAND = [sys.executable, "-m", "splatfix"]

posix = pytest.mark.skipif(os.name != "posix", reason="pipes and folders as POSIX has them")


def test_the_options_of_a_command_to_watch_are_its_own(splatfix: Splatfix, tmp_path: Path) -> None:
    out = ("--interval", "0.1", "--out", str(tmp_path))
    theirs = splatfix("monitor", *out, "/no/such/command", "--json")
    assert (theirs.returncode, theirs.stdout) == (2, "") and "(cannot-start)" in theirs.stderr
    ours = splatfix("monitor", *out, "--json", "/no/such/command")
    assert json.loads(ours.stdout)["error"]["code"] == "cannot-start" and ours.stderr == ""


def test_words_for_another_program_are_none_of_ours(splatfix: Splatfix) -> None:
    for words in (["certify", "--repo", "absent", "--"], ["explain", "--", "/no/such/program"]):
        theirs = splatfix(*words, "--json")
        assert (theirs.returncode, theirs.stdout) == (2, "") and "error (" in theirs.stderr


@posix
@pytest.mark.parametrize("words", [["diagnose", "--list", "--json"], ["--help"]])
def test_a_reader_that_has_gone_is_no_failure(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as out:
        done = subprocess.run([*COMMAND, *words], stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["diagnose", "--list"], ["diagnose", "--list", "--json"]])
def test_an_output_that_is_full_is_told_on_the_other_stream(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "(os-error)" in done.stderr and "refused: No space left" in done.stderr
    assert "Exception ignored" not in done.stderr


@posix
def test_a_current_folder_that_is_no_more(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'cd "{gone}" && rmdir "{gone}" && exec "{sys.executable}" -m splatfix "$@"'
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}  # -m looks into the current folder, which is not there
    argv = ["sh", "-c", script, "sh", "diagnose", "--json"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "no-current-folder")
