"""The command line as a person uses it: exit codes, JSON, clear errors, nothing heavy imported for help."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Splatfix
from tests.files import put
from tests.tables import data

TEXTS: dict[str, str] = data(__file__)["texts"]


def test_both_ways_of_calling_it_give_the_version() -> None:
    script = Path(sys.executable).with_name("splatfix")
    for command in ([str(script)], [sys.executable, "-m", "splatfix"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("splatfix 0.")


def test_help_says_where_to_begin(splatfix: Splatfix) -> None:
    shown = " ".join(splatfix("--help").stdout.split())
    assert "Begin in the folder of your trainer" in shown
    assert "splatfix diagnose, then splatfix install, then splatfix certify" in shown


HEAVY = {"torch", "numpy", "docker", "pynvml", "splatfix.facts", "splatfix.checks", "splatfix.plan"}


def test_help_imports_neither_torch_nor_numpy_nor_a_use_case() -> None:
    code = f"HEAVY = {HEAVY!r}\n{TEXTS['helped']}"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_diagnosis_loads_nothing_that_takes_long(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", TEXTS["light"]], check=True, capture_output=True, cwd=tmp_path)


def test_replayed_facts_give_identical_findings(splatfix: Splatfix, empty_venv: Path, tmp_path: Path) -> None:
    saved = tmp_path / "facts.json"
    here = splatfix(
        "diagnose", "--python", str(empty_venv), "--target", "12.0", "--save", str(saved), "--json"
    )
    there = splatfix("diagnose", "--facts", str(saved), "--target", "sm_120", "--json", cwd=tmp_path)
    ours, theirs = (json.loads(done.stdout) for done in (here, there))
    for name in ("why", "next_steps", "not_examined"):  # commands on this machine
        del ours[name], theirs[name]
    assert ours == theirs
    again = tmp_path / "again.json"
    splatfix("diagnose", "--facts", str(saved), "--save", str(again))
    assert again.read_text() == saved.read_text()


TRAIN = "from simple_knn._C import distCUDA2\nfrom gsplat import rasterization\n"


def test_a_checkout_is_judged_and_saved(splatfix: Splatfix, empty_venv: Path, tmp_path: Path) -> None:
    """As far as it is reached: what no script imports asks for nothing. The current folder is meant where none is named."""
    unused = {"old/renderer.py": "from diff_gaussian_rasterization import GaussianRasterizer\n"}
    files = {"train.py": TRAIN, "submodules/simple-knn/setup.py": TEXTS["setup"], **unused}
    stack = put(tmp_path / "stack", files)
    saved, asked = tmp_path / "facts.json", ("diagnose", "--only", "checkout", "--json")
    done = splatfix(*asked, "--python", empty_venv, "--repo", stack, "--save", saved)
    findings = json.loads(done.stdout)["findings"]
    told = {(item["check"], item["subject"]) for item in findings if item["status"] == "fail"}
    assert told == {("ext-not-installed", "gsplat"), ("ext-not-installed", "simple_knn")}
    assert json.loads(splatfix(*asked, "--facts", saved).stdout)["findings"] == findings
    standing = splatfix(*asked, "--python", empty_venv, cwd=stack)
    assert json.loads(standing.stdout)["findings"] == findings
    for folder, told in ((put(tmp_path / "other", {"main.py": TRAIN}), True), (tmp_path, False)):
        done = splatfix("diagnose", "--python", empty_venv, "--save", saved, cwd=folder)
        assert ("was not examined; to do so: splatfix diagnose --repo ." in done.stdout) is told
        assert not json.loads(splatfix(*asked, "--facts", saved).stdout)["findings"]


def test_a_users_own_knowledge_counts(splatfix: Splatfix, empty_venv: Path, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(TEXTS["new_arch"])
    words = ("diagnose", "--python", str(empty_venv), "--target", "sm_130", "--json")
    assert json.loads(splatfix(*words).stdout)["error"]["code"] == "unknown-arch"
    taught = json.loads(splatfix("--knowledge", str(tmp_path / "own.toml"), *words).stdout)
    assert taught["goal"]["targets"] == ["sm_130"]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_without_our_signs_gets_plain_ones(empty_venv: Path, encoding: str) -> None:
    argv = [sys.executable, "-m", "splatfix", "diagnose", "--python", str(empty_venv)]
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(argv, env=env, capture_output=True, encoding=encoding, check=False)
    assert done.returncode == 1
    assert "x torch is not installed" in done.stdout


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
