"""The two commands as a person types them: plans, and one clear message for each kind of bad input."""

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from splatfix.cli import main
from splatfix.install.environment import Environment

from .environments import make_environment, run_in, snapshot, write_extension

FIXTURES = Path(__file__).parents[1] / "fixtures"


def splatfix(*arguments: str) -> int:
    """Run the command line in this process; its exit code."""
    before, sys.argv = sys.argv, ["splatfix", *arguments]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def fake_torch(target: Environment, version: str, cuda: str | None) -> None:
    """torch as far as it is read as text: version.py and the arch list of cpp_extension."""
    folder = target.purelib / "torch"
    (folder / "utils").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = None\n")
    archs = "supported_arches = ['7.5', '8.0', '8.6', '9.0', '10.0', '12.0']\n"
    (folder / "utils" / "cpp_extension.py").write_text(archs)


def test_dry_run_shows_the_plan_and_changes_nothing(
    environment: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_extension(tmp_path / "source")
    before = snapshot(environment)
    assert splatfix("install", str(source), "--python", str(environment.prefix), "--dry-run", "--why") == 0
    text = capsys.readouterr().out
    for words in ("build tiny_probe", "verify the wheel", "MAX_JOBS=", "Nothing was changed"):
        assert words in text
    assert splatfix("install", str(source), "--python", environment.python, "--dry-run", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["command"] == "install" and plan["exit_code"] == 0
    kinds = [step["kind"] for step in plan["plan"]["steps"]]
    assert kinds == ["build-wheel", "verify-wheel", "install-wheel", "check-import"]
    assert snapshot(environment) == before
    assert not environment.state_folder.exists()


def test_install_and_revert_as_typed(
    blank: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_extension(tmp_path / "my source")
    assert splatfix("install", str(source), "--python", blank.python) == 0
    said = capsys.readouterr()
    assert re.search(r"^ +log: /.*/build-tiny_probe\.log$", said.err, re.MULTILINE)
    assert "✓ loads" in said.out and "– computes" in said.out
    words = printed(said.out, "splatfix revert")
    assert words == ["splatfix", "revert", "0001", "--python", blank.python]
    assert run_in(blank, "import tiny_probe; print(tiny_probe.answer())") == "42"
    assert splatfix("revert", "--list", "--python", blank.python) == 0
    assert "done" in capsys.readouterr().out
    assert splatfix(*words[1:]) == 0
    assert "tiny_probe 1.0 removed" in capsys.readouterr().out


def test_typed_inside_a_checkout_it_installs_every_extension(
    environment: Environment,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkout = tmp_path / "mine"
    write_extension(checkout / "submodules" / "second", name="second_probe", answer=2)
    write_extension(checkout / "submodules" / "first", name="first_probe", answer=1)
    for name in ("train.py", "full_eval.py", "convert.py"):
        (checkout / name).write_text("")
    before = snapshot(environment)
    monkeypatch.chdir(checkout)
    assert splatfix("install", ".", "--python", environment.python) == 0
    text = capsys.readouterr().out
    assert (
        "Plan: install first-probe, second-probe" in text or "Plan: install first_probe, second_probe" in text
    )
    code = "import first_probe, second_probe; print(first_probe.answer(), second_probe.answer())"
    assert run_in(environment, code) == "1 2"
    assert splatfix("revert", "--python", environment.python) == 0
    assert snapshot(environment) == before


BAD_INPUT = [
    # (what is typed, exit code, error code, a value in the message)
    (["nowhere"], 2, "not-a-folder", "nowhere"),
    (["fused_ssim"], 2, "not-a-folder", "pure"),
    (["{empty}"], 2, "not-an-extension", "empty"),
    (["{source}", "{twin}"], 1, "same-name-twice", "tiny_probe"),
    (["{file}"], 2, "not-a-folder", "file.txt"),
    (["{broken}"], 2, "source-unreadable", "setup.py"),
    (["{probe}", "--target", "sm_12"], 2, "unknown-arch", "sm_12"),
    (["{probe}", "--target", "sm_120"], 1, "no-torch", "torch"),
    (["{source}", "--python", "{empty}"], 2, "no-interpreter", "empty"),
    (["{source}", "--python", "/nowhere/python"], 2, "no-interpreter", "/nowhere/python"),
    (["{source}", "--python", "{program}"], 2, "no-interpreter", "ls"),
    (["{source}", "--python", "{activate}"], 2, "no-interpreter", "--python"),
    (["{source}", "--python", "{dead}"], 1, "interpreter-unusable", "3"),
    (["/"], 2, "not-a-checkout", "/"),
    (["fused_ssim", "--backend", "pure"], 1, "no-torch", "torch"),
    (["numpy", "--backend", "pure"], 2, "unknown-drop-in", "fused_ssim, simple_knn"),
    (["--backend", "pure"], 2, "nothing-to-replace", "fused_ssim, simple_knn"),
    (["diff_plane_rasterization", "--backend", "pure"], 1, "nothing-replaces-it", "diff_plane"),
]


@pytest.mark.parametrize(("typed", "code", "error", "words"), BAD_INPUT, ids=lambda value: str(value)[:40])
def test_bad_input(
    environment: Environment,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    typed: list[str],
    code: int,
    error: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = {
        "empty": tmp_path / "empty",
        "file": tmp_path / "file.txt",
        "broken": tmp_path / "broken",
        "probe": FIXTURES / "splat_probe",
        "source": tmp_path / "source",
        "twin": tmp_path / "twin",
        "program": Path("/bin/ls"),
        "dead": tmp_path / "python3.12",
        "activate": environment.prefix / "bin" / "activate",
    }
    places["dead"].write_text("#!/bin/sh\nexit 3\n")
    places["dead"].chmod(0o755)
    for name in ("empty", "broken"):
        places[name].mkdir()
    places["file"].write_text("")
    (places["broken"] / "setup.py").write_text("def half(:\n")
    for name in ("source", "twin"):
        write_extension(places[name])
    monkeypatch.chdir(places["empty"])  # what "nothing named" means depends on the folder that one stands in
    before = snapshot(environment)
    arguments = [item.format(**places) for item in typed]
    if "--python" not in arguments:
        arguments += ["--python", environment.python]

    assert splatfix("install", *arguments, "--json") == code

    said = capsys.readouterr()
    problem = json.loads(said.out)["error"]
    assert problem["code"] == error and (problem["todo"] or error == "unknown-arch")
    assert words in json.dumps(problem, ensure_ascii=False)
    assert "Traceback" not in said.err
    assert snapshot(environment) == before and not environment.state_folder.exists()


def test_typed_where_there_is_nothing(
    environment: Environment,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "nothing").mkdir()
    monkeypatch.chdir(tmp_path / "nothing")
    assert splatfix("install", "--target", "sm_120", "--python", environment.python) == 2
    assert "(no-source)" in capsys.readouterr().err
    monkeypatch.setattr(Path, "home", classmethod(lambda cls: tmp_path / "nothing"))
    assert splatfix("install", "--target", "sm_120", "--python", environment.python) == 2
    assert "your home folder, not a checkout" in capsys.readouterr().err
    assert not environment.state_folder.exists()


@pytest.mark.parametrize("clone", [True, False])
def test_typed_in_some_project_it_installs_nothing(
    clone: bool,
    environment: Environment,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = write_extension(tmp_path / "project")
    if clone:
        (project / ".git").mkdir()
    monkeypatch.chdir(project)
    before = snapshot(environment)
    for more in ((), ("--dry-run",)):
        assert splatfix("install", *more, "--python", environment.python, "--json") == 2
        problem = json.loads(capsys.readouterr().out)["error"]
        assert problem["code"] == "no-source"
        assert problem["todo"][0]["argv"][:3] == ["splatfix", "install", "."]
    assert snapshot(environment) == before
    assert splatfix("install", ".", "--python", environment.python, "--dry-run") == 0


def test_a_read_only_environment_is_refused_before_the_build(
    environment: Environment,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
    source = write_extension(tmp_path / "source")
    assert splatfix("install", str(source), "--python", environment.python) == 1
    assert "(cannot-write-environment)" in capsys.readouterr().err
    assert not environment.state_folder.exists()


@pytest.fixture
def blank(tmp_path: Path) -> Environment:
    return make_environment(tmp_path / "my env")


def printed(text: str, begin: str) -> list[str]:
    """The words, as a shell reads them, of the command that begins so at the end of a line."""
    whole = re.sub(r" *\\\n *", " ", text)  # a long command goes on after a backslash
    line = next(line for line in whole.splitlines() if begin in line)
    return shlex.split(line[line.index(begin) :])


def words_of(document: str, program: str) -> list[str]:
    """The words, as a shell reads them, of the command in an error's JSON that calls this program."""
    steps = json.loads(document)["error"]["todo"]
    (step,) = (step for step in steps if step["argv"][:1] == [program])
    words = shlex.split(step["command"])
    assert words == step["argv"]
    return words


def incomplete(folder: Path, url: str) -> Path:
    """A checkout whose submodule is empty."""
    (folder / "submodules" / "simple-knn").mkdir(parents=True)
    (folder / ".gitmodules").write_text(f'[submodule "x"]\n\tpath = submodules/simple-knn\n\turl = {url}\n')
    return folder


def test_an_incomplete_checkout(
    blank: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = incomplete(tmp_path / "my checkout", "git@x.org:a/knn")
    place = f"{folder}/submodules/simple-knn"
    assert splatfix("install", str(folder), "--python", blank.python, "--json") == 1
    words = words_of(capsys.readouterr().out, "git")
    assert words == ["git", "clone", "--recursive", "https://x.org/a/knn", place]
    (folder / ".git").mkdir()
    assert splatfix("install", str(folder), "--python", blank.python, "--json") == 1
    words = words_of(capsys.readouterr().out, "git")
    over_https = ["-c", "url.https://x.org/.insteadOf=git@x.org:"]
    assert words == ["git", "-C", str(folder), *over_https, "submodule", "update", "--init", "--recursive"]


def test_options_stand_beside_empty_submodules(
    blank: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = incomplete(tmp_path / "stack", "https://x.org/a/knn")
    words = ("install", str(folder), "--python", blank.python, "-t", "sm_120", "--dry-run", "--json")
    assert splatfix(*words) == 1, "without --why there is no plan to show"
    capsys.readouterr()
    for more, codes in (("--why", (1,)), ("--fetch-submodules", (0, 3))):
        assert splatfix(*words, more) in codes
        document = json.loads(capsys.readouterr().out)
        assert document["options"]["subjects"] == ["simple_knn"]
        assert (document["error"] is None) is (codes != (1,)), "what is to be fetched is no obstacle"
    assert not list((folder / "submodules/simple-knn").iterdir()), "a dry run fetches nothing"
    address = folder / ".gitmodules"
    address.write_text(address.read_text().replace("https://x.org", "/home/me"))
    assert splatfix("install", str(folder), "--python", blank.python, "--fetch-submodules", "--json") == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "submodules-not-fetched"
