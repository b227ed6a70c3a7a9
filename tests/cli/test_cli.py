"""The command line as a person uses it: exit codes, JSON, clear errors, nothing heavy imported for help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Splatfix = Callable[..., "subprocess.CompletedProcess[str]"]


def test_both_ways_of_calling_it_give_the_version() -> None:
    script = Path(sys.executable).with_name("splatfix")
    for command in ([str(script)], [sys.executable, "-m", "splatfix"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("splatfix 0.")


@pytest.mark.parametrize(
    "words", [["--help"], ["diagnose", "--help"], ["certify", "--help"], ["install", "--help"]]
)
def test_help_imports_neither_torch_nor_numpy(words: list[str]) -> None:
    code = (
        "import sys\nfrom splatfix.cli import app\n"
        f"try:\n app({words!r}, prog_name='splatfix')\nexcept SystemExit as end:\n assert end.code == 0\n"
        "heavy = {'torch', 'numpy', 'docker', 'pynvml', 'splatfix.facts', 'splatfix.checks'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_an_environment_without_torch_is_ill(splatfix: Splatfix, empty_venv: Path) -> None:
    done = splatfix("diagnose", "--python", str(empty_venv), "--json")
    document = json.loads(done.stdout)
    assert document["exit_code"] == done.returncode == 1
    failed = {item["check"] for item in document["findings"] if item["status"] == "fail"}
    assert "torch-missing" in failed


def test_replayed_facts_give_identical_findings(splatfix: Splatfix, empty_venv: Path, tmp_path: Path) -> None:
    saved = tmp_path / "facts.json"
    here = splatfix(
        "diagnose", "--python", str(empty_venv), "--target", "12.0", "--save", str(saved), "--json"
    )
    there = splatfix("diagnose", "--facts", str(saved), "--target", "sm_120", "--json", cwd=tmp_path)
    assert here.stdout == there.stdout
    again = tmp_path / "again.json"
    splatfix("diagnose", "--facts", str(saved), "--save", str(again))
    assert again.read_text() == saved.read_text()


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (["diagnose", "--target", "sm_12000"], "unknown-arch", 2),
        (["diagnose", "--python", "/no/such/python"], "no-interpreter", 2),
        (["diagnose", "--facts", "/no/such/file"], "cannot-read", 2),
        (["diagnose", "--only", "no-such-check"], "unknown-check", 2),
        (["inspect", "/no/such/file"], "no-such-file", 2),
        (["inspect", __file__], "not-a-binary", 2),
        (["certify", "--suite", "no-such-suite"], "unknown-suite", 2),
        (["install", "--resume", "--ptx", "--jobs", "2"], "resume-takes-no-source", 2),
        (["install", "--resume", "gsplat==0.0.0"], "resume-takes-no-source", 2),
        (["install", "--dry-run", "--why", "--facts", "x", "--force-cuda-mismatch"], "facts-and-options", 2),
        (["certify", "--python", "/no/such/python"], "no-interpreter", 2),
        (["checks", "show", "no-such"], "unknown-check", 2),
        (["certify", "--format", "junit"], "json-and-format", 2),
        (["report", "show", "a", "--format", "html"], "json-and-format", 2),
        (["report", "diff", "a", "b", "--format=markdown"], "json-and-format", 2),
        (["--knowledge", "own.toml", "diagnose"], "bad-knowledge", 2),
        (["certify", "--renderer", "nope"], "wrong-usage", 2),
        (["certify", "--level", "5"], "wrong-usage", 2),
        (["certify", "--seed", str(1 << 64)], "wrong-usage", 2),
        (["diagnose", "--facts", "facts.json"], "not-facts", 2),
        (["diagnose", "--facts", "facts.json", "--repo", "."], "facts-and-python", 2),
        (["diagnose", "--repo", "nowhere"], "not-a-folder", 2),
    ],
)
def test_wrong_calls_get_one_clear_error(
    splatfix: Splatfix, words: list[str], code: str, exit_code: int, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text("[archs.archs.130]\n")
    (tmp_path / "facts.json").write_text('{"schema_version": 1, "machine": 3}')
    as_json = splatfix(*words, "--json", cwd=tmp_path)
    document = json.loads(as_json.stdout)
    assert (document["error"]["code"], as_json.returncode) == (code, exit_code)
    if code != "json-and-format":
        as_text = splatfix(*words, cwd=tmp_path)
        assert as_text.returncode == exit_code and "Traceback" not in as_text.stderr
        assert f"({code})" in as_text.stderr or code == "wrong-usage"


def test_facts_that_cannot_be_saved_say_so(splatfix: Splatfix, empty_venv: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    places = {
        tmp_path / "nope" / "x.json": f"There is no folder {tmp_path / 'nope'}.",
        tmp_path / "file" / "x.json": f"There is no folder {tmp_path / 'file'}.",
        tmp_path: f"{tmp_path} is a folder.",
    }
    for place, words in places.items():
        done = splatfix("diagnose", "--python", str(empty_venv), "--save", str(place))
        assert (done.returncode, done.stdout) == (2, "")
        assert f"(cannot-save) {words}" in done.stderr
    assert not (tmp_path / "nope").exists()
    kept = splatfix("diagnose", "--python", str(empty_venv), "--save", "facts.json", cwd=tmp_path)
    assert kept.returncode == 1 and (tmp_path / "facts.json").is_file()


def test_checks_list_and_show(splatfix: Splatfix) -> None:
    document = json.loads(splatfix("checks", "list", "--json").stdout)
    codes = [item["code"] for item in document["checks"]]
    assert "no-kernel-image" in codes
    assert splatfix("checks", "show", "no-kernel-image").returncode == 0


def test_an_environment_without_torch_cannot_be_certified(
    splatfix: Splatfix, empty_venv: Path, tmp_path: Path
) -> None:
    done = splatfix("certify", "--python", str(empty_venv), "--out", str(tmp_path / "report"))
    assert done.returncode == 3
    assert "(environment-not-ready)" in done.stderr
    assert "torch numpy pillow" in " ".join(done.stderr.split())
    assert not (tmp_path / "report").exists()


NEW_ARCH = """
[archs.archs.130]
cc = [13, 0]
name = "Example"
gpus = ["RTX 6090"]
first_toolkit = [14, 0]
last_toolkit = false
tegra = false
variants = {}
verified = true
source = "a release note"
"""


def test_a_users_own_knowledge_counts(splatfix: Splatfix, empty_venv: Path, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(NEW_ARCH)
    words = ("diagnose", "--python", str(empty_venv), "--target", "sm_130", "--json")
    assert json.loads(splatfix(*words).stdout)["error"]["code"] == "unknown-arch"
    taught = json.loads(splatfix("--knowledge", str(tmp_path / "own.toml"), *words).stdout)
    assert taught["goal"]["targets"] == ["sm_130"]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_without_our_signs_gets_plain_ones(empty_venv: Path, encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "splatfix", "diagnose", "--python", str(empty_venv)],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        encoding=encoding,
        check=False,
    )
    assert done.returncode == 1
    assert "x torch is not installed" in done.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--renderer", "gsplat"], "renderer-needs-gpu"),
        (["--baseline", "diagnosis.json"], "not-a-certificate"),
        (["--baseline", "other.json"], "another-baseline"),
        (["--baseline", "level.json"], "of run level 1, which trains nothing"),
        (["--baseline", "ended.json"], "ended before a scene was trained"),
        (["--baseline", "no-such.json"], "unknown-baseline"),
        (["--baseline", "inria-2023"], "baseline-needs-data"),
        (["--level", "3", "--suite", "quick"], "not-with-level"),
        (["--level", "3", "--data", "."], "not-with-level"),
        (["--level", "2", "--baseline", "other.json"], "not-with-level"),
        (["--level", "2", "--container", "cpu"], "not-in-a-container"),
        (["--level", "4", "--data", ".", "--device", "cpu"], "level-needs-gpu"),
        (["--out", "file/below"], "cannot-write"),
        (["--container", "cpu", "--baseline", "other.json", "--seed", "3"], "not-in-a-container"),
        (["--base-image", "debian:12"], "only-in-a-container"),
        (["--docker-host", "tcp://127.0.0.1:1", "--ca-certificates", "file"], "only-in-a-container"),
    ],
)
def test_what_cannot_be_certified_is_said_before_training(
    splatfix: Splatfix, tmp_path: Path, words: list[str], code: str
) -> None:
    (tmp_path / "diagnosis.json").write_text('{"command": "diagnose"}')
    (tmp_path / "other.json").write_text(
        '{"command": "certify", "scenes": [{}], "renderer": "gsplat", "device": "cuda"}'
    )
    (tmp_path / "level.json").write_text('{"command": "certify", "scenes": [], "level": 1}')
    (tmp_path / "ended.json").write_text('{"command": "certify", "scenes": [], "interrupted": true}')
    (tmp_path / "file").write_text("")
    done = splatfix("certify", *words, cwd=tmp_path)
    assert (code if " " in code else f"({code})") in " ".join(done.stderr.split())
    assert done.returncode == (1 if code == "cannot-write" else 2)


def test_a_gpu_that_is_not_there_is_not_diagnosed(splatfix: Splatfix, tmp_path: Path) -> None:
    done = splatfix("certify", "--level", "1", "--device", "cuda", cwd=tmp_path)
    assert (done.returncode, "(no-gpu)" in done.stderr) == (3, True) or "passed on cuda" in done.stdout
