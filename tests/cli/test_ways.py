"""``install --dry-run --why`` and ``diagnose`` through the command line: the ways out as people and programs read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from splatfix.app.diagnose import DiagnoseRequest, next_step, why_command
from splatfix.app.options import checkout_of
from splatfix.cli import app
from splatfix.core.errors import SplatfixError
from tests.machines import facts_of, folder


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(item) for item in arguments])


def refusal(*arguments: str | Path) -> tuple[str, int]:
    """Code and exit code of the error that a command ends in; what prints it is tested elsewhere."""
    problem = run(*arguments).exception
    assert isinstance(problem, SplatfixError)
    return problem.code, int(problem.exit_code)


def test_why_of_saved_facts_names_the_plan_and_the_shut_roads() -> None:
    done = run("install", "--dry-run", "--why", "--facts", folder("gtx-1080-ti-dropped"))
    assert done.exit_code == 0, done.output
    assert "torch==2.8.0+cu126" in done.output
    assert "Shut roads" in done.output and "has no code for sm_61" in done.output
    document = json.loads(
        run("install", "--dry-run", "--why", "--facts", folder("gtx-1080-ti-dropped"), "--json").output
    )
    assert (document["command"], document["plan"], document["exit_code"]) == ("install", None, 0)
    assert document["options"]["plans"][0]["road"] == "other-torch"
    assert document["options"]["plans"][0]["steps"][0]["text"].startswith("install torch 2.8.0 (cu126)")


def test_keep_leaves_torch_alone() -> None:
    done = run("install", "--dry-run", "--why", "--keep", "torch", "--facts", folder("gtx-1080-ti-dropped"))
    assert "is to be left as it is" in done.output
    assert "install torch" not in done.output.split("Shut roads")[0]


def test_the_options_of_why_are_refused_without_it() -> None:
    assert refusal("install", "--facts", folder("h200")) == ("only-with-why", 2)
    wanted = ("install", "--dry-run", "--why", "--facts", folder("h200"))
    assert refusal(*wanted, "--backend", "pure") == ("facts-and-options", 2)
    assert refusal(*wanted, "--python", "env") == ("facts-and-options", 2)


def test_diagnose_ends_with_the_way_out_only_where_something_failed() -> None:
    ill = run("diagnose", "--facts", folder("rtx-3090-and-5090"))
    assert ill.exit_code == 1
    assert "Way out: rebuild the extensions with a toolkit that is here" in ill.output
    well = run("diagnose", "--facts", folder("h200"))
    assert "Way out" not in well.output
    document = json.loads(run("diagnose", "--facts", folder("rtx-3090-and-5090"), "--json").output)
    assert document["options"]["plans"][0]["road"] == "rebuild"
    assert json.loads(run("diagnose", "--facts", folder("h200"), "--json").output)["options"] is None


def test_a_healthy_diagnosis_names_what_only_running_shows(tmp_path: Path) -> None:
    well = run("diagnose")
    named = "splatfix verify; splatfix certify"
    assert (named in well.output) == (well.exit_code != 1 and "torch is not installed" not in well.output)
    assert named not in run("diagnose", "--only", "gpu-present").output
    assert named not in run("diagnose", "--facts", folder("h200")).output


@pytest.mark.parametrize(
    ("machine", "python", "words"),
    [
        ("rtx-5080", None, "splatfix verify; splatfix certify --renderer inria"),
        (
            "rtx-5080",
            "my env",
            "splatfix verify --python 'my env'; splatfix certify --renderer inria --python 'my env'",
        ),
        ("apple-m2-max", None, "splatfix verify; splatfix certify"),
    ],
)
def test_the_next_step_fits_the_environment(machine: str, python: str | None, words: str) -> None:
    assert next_step(facts_of(machine), python).endswith(f"Next: {words}")


def test_why_for_a_source_here_gives_plan_and_ways(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='plain')\n")
    done = run("install", tmp_path, "--dry-run", "--why", "--target", "sm_120", "--json")
    document = json.loads(done.output)
    assert document["command"] == "install"
    assert document["plan"]["actions"][0]["subject"] == "plain"
    assert document["options"]["targets"] == ["sm_120"]


def test_why_for_a_source_that_is_none_is_still_wrong_usage(tmp_path: Path) -> None:
    wanted = ("install", tmp_path / "nothing", "--dry-run", "--why")
    assert refusal(*wanted) == ("not-a-folder", 2)


def test_the_command_for_all_ways_asks_about_the_same_machine() -> None:
    machine = folder("rtx-3090-and-5090")
    assert f"splatfix install --dry-run --why --facts {machine}" in run("diagnose", "--facts", machine).output


def test_a_project_without_gpu_code_in_the_current_folder_is_not_what_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='plain')\n")
    monkeypatch.chdir(tmp_path)
    document = json.loads(run("install", "--dry-run", "--why", "--target", "sm_120", "--json").output)
    assert (document["plan"], document["options"]["subjects"]) == (None, [])


def test_a_failing_diagnosis_of_a_folder_that_is_no_stack_does_not_propose_to_install_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "plain").mkdir()
    assert "install" in why_command(DiagnoseRequest(targets=("sm_120",)))
    named = DiagnoseRequest(targets=("sm_120",), repo=tmp_path)
    assert str(tmp_path) not in why_command(named)
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='plain')\n")
    assert str(tmp_path) in why_command(named)


def test_only_a_named_folder_that_can_be_installed_is_read_as_a_checkout(tmp_path: Path) -> None:
    assert checkout_of((str(tmp_path),)) is None
    assert checkout_of(()) is None
    assert checkout_of(("gsplat==1.5.3",)) is None
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='plain')\n")
    assert checkout_of((str(tmp_path),)) == tmp_path
    assert checkout_of((str(tmp_path), "simple_knn")) is None


def test_a_folder_of_checkouts_is_asked_about_when_named_and_passed_over_when_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "setup.py").write_text("from setuptools import setup\nsetup(ext_modules=[])\n")
    monkeypatch.chdir(tmp_path)
    problem = run("install", ".", "--dry-run", "--why", "--target", "sm_120").exception
    assert isinstance(problem, SplatfixError) and int(problem.exit_code) == 2
    assert {"splatfix install ./one", "splatfix install ./two"} <= set(problem.todo)
    document = json.loads(run("install", "--dry-run", "--why", "--target", "sm_120", "--json").output)
    assert (document["plan"], document["options"]["subjects"]) == (None, [])
    assert "one" not in json.dumps(document["options"])
