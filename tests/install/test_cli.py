"""The two commands as a person types them: plans, and one clear message for each kind of bad input."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from splatfix.install.environment import Environment
from tests.cli.conftest import Document
from tests.conftest import ROOT, Splatfix
from tests.files import put
from tests.plan.machines import with_submodules
from tests.tables import data

from .environments import make_environment, run_in, snapshot, write_extension


def fake_torch(target: Environment, version: str, cuda: str | None) -> None:
    """torch as far as it is read as text: version.py and the arch list of cpp_extension."""
    files = {
        "__init__.py": "",
        "version.py": f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = None\n",
        "utils/cpp_extension.py": "supported_arches = ['7.5', '8.0', '8.6', '9.0', '10.0', '12.0']\n",
    }
    put(target.purelib / "torch", files)


def test_install_and_revert_as_typed(tmp_path: Path, splatfix: Splatfix) -> None:
    blank = make_environment(tmp_path / "my env")
    said = splatfix("install", write_extension(tmp_path / "my source"), "--python", blank.python)
    assert re.search(r"^ +log: /.*/build-tiny_probe\.log$", said.stderr, re.MULTILINE)
    assert "✓ loads" in said.stdout and "– computes" in said.stdout
    whole = re.sub(r" *\\\n *", " ", said.stdout)  # a long command goes on after a backslash
    (typed,) = re.findall(r"splatfix revert .*", whole)
    words = shlex.split(typed)
    assert words == ["splatfix", "revert", "0001", "--python", blank.python]
    assert run_in(blank, "import tiny_probe; print(tiny_probe.answer())") == "42"
    assert "done" in splatfix("revert", "--list", "--python", blank.python).stdout
    assert "tiny_probe: 1.0 → not installed, as before" in splatfix(*words[1:]).stdout


def test_all_extensions_of_a_checkout(environment: Environment, tmp_path: Path, splatfix: Splatfix) -> None:
    checkout = tmp_path / "mine"
    write_extension(checkout / "submodules" / "second", name="second_probe", answer=2)
    write_extension(checkout / "submodules" / "first", name="first_probe", answer=1)
    put(checkout, dict.fromkeys(("train.py", "full_eval.py", "convert.py"), ""))
    before = snapshot(environment)
    text = splatfix("install", ".", "--python", environment.python, cwd=checkout).stdout
    assert "Plan: install first_probe, second_probe" in text.replace("-", "_")
    code = "import first_probe, second_probe; print(first_probe.answer(), second_probe.answer())"
    assert run_in(environment, code) == "1 2"
    assert splatfix("revert", "--python", environment.python).returncode == 0
    assert snapshot(environment) == before


@pytest.mark.parametrize("case", data(__file__)["refused"], ids=lambda case: " ".join(case["typed"])[:40])
def test_refused(environment: Environment, tmp_path: Path, splatfix: Splatfix, case: dict[str, Any]) -> None:
    put(tmp_path, {"file.txt": "", "broken/setup.py": "def half(:\n", "python3.12": "#!/bin/sh\nexit 3\n"})
    places = {name: tmp_path / name for name in ("empty", "broken", "source", "twin")}
    places |= {"file": tmp_path / "file.txt", "dead": tmp_path / "python3.12"}
    places |= {"activate": environment.prefix / "bin" / "activate", "program": Path("/bin/ls")}
    places["probe"] = ROOT / "tests" / "fixtures" / "splat_probe"
    places["dead"].chmod(0o755)
    places["empty"].mkdir()
    for name in ("source", "twin"):
        write_extension(places[name])
    before = snapshot(environment)
    arguments = [item.format(**places) for item in case["typed"]]
    if "--python" not in arguments:
        arguments += ["--python", environment.python]

    # what "nothing named" means depends on the folder that one stands in
    said = splatfix("install", *arguments, "--json", cwd=places["empty"])

    problem = json.loads(said.stdout)["error"]
    assert (said.returncode, problem["code"]) == (case["exit"], case["code"])
    assert problem["todo"] or case["code"] == "unknown-arch"
    assert case["words"] in json.dumps(problem, ensure_ascii=False)
    assert "Traceback" not in said.stderr
    assert snapshot(environment) == before and not environment.state_folder.exists()


def test_typed_where_there_is_nothing(
    environment: Environment, tmp_path: Path, splatfix: Splatfix, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    words = ("install", "--target", "sm_120", "--python", environment.python)
    said = splatfix(*words, cwd=nothing)
    assert said.returncode == 2 and "(no-source)" in said.stderr
    monkeypatch.setattr(Path, "home", classmethod(lambda cls: nothing))
    said = splatfix(*words, cwd=nothing)
    assert said.returncode == 2 and "your home folder, not a checkout" in said.stderr
    assert not environment.state_folder.exists()


@pytest.mark.parametrize("clone", [True, False])
def test_in_some_project(clone: bool, environment: Environment, tmp_path: Path, splatfix: Splatfix) -> None:
    project = write_extension(tmp_path / "project")
    if clone:
        (project / ".git").mkdir()
    before, python = snapshot(environment), ("--python", environment.python)
    for more in ((), ("--dry-run",)):
        said = splatfix("install", *more, *python, "--json", cwd=project)
        problem = json.loads(said.stdout)["error"]
        assert (said.returncode, problem["code"]) == (2, "no-source")
        assert problem["todo"][0]["argv"][:3] == ["splatfix", "install", "."]
    assert snapshot(environment) == before
    assert splatfix("install", ".", *python, "--dry-run", cwd=project).returncode == 0


def test_a_read_only_environment_is_refused_before_the_build(
    environment: Environment, tmp_path: Path, splatfix: Splatfix, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
    said = splatfix("install", write_extension(tmp_path / "source"), "--python", environment.python)
    assert said.returncode == 1 and "(cannot-write-environment)" in said.stderr
    assert not environment.state_folder.exists()


def test_options_with_empty_submodules(environment: Environment, tmp_path: Path, document: Document) -> None:
    folder = with_submodules(tmp_path / "stack", "submodules/simple-knn")
    words = ("install", folder, "--python", environment.python, "-t", "sm_120")
    assert document(*words, "--dry-run")["exit_code"] == 1, "without --why there is no plan to show"
    for more, codes in (("--why", (1,)), ("--fetch-submodules", (0, 3))):
        shown = document(*words, "--dry-run", more)
        assert shown["exit_code"] in codes and shown["options"]["subjects"] == ["simple_knn"]
        assert (shown["error"] is None) is (codes != (1,)), "what is to be fetched is no obstacle"
    assert not list((folder / "submodules/simple-knn").iterdir()), "a dry run fetches nothing"
    listed = (folder / ".gitmodules").read_text()
    (folder / ".gitmodules").write_text(listed.replace("https://x.org", "/home/me"))
    refused = document(*words, "--fetch-submodules")
    assert (refused["exit_code"], refused["error"]["code"]) == (1, "submodules-not-fetched")
