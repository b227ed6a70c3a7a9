"""``install --dry-run --why`` and ``diagnose`` through the command line: the options as people and programs read them."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from splatfix.app.diagnose import DiagnoseRequest, diagnose, next_steps
from splatfix.cli import app
from splatfix.context import make_context
from splatfix.core.codec import to_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_json
from splatfix.knowledge import Arch
from splatfix.model import Fact
from splatfix.plan import summarise
from tests.checks.test_packages import package
from tests.machines import facts_of, folder
from tests.plan.machines import healthy
from tests.plan.test_advice import wrapped
from tests.plan.test_parts import calling, with_rasterizer


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(item) for item in arguments])


def test_what_is_to_be_kept_is_no_option() -> None:
    """Without ``--keep`` another torch is the first, as a screen of test_screens shows."""
    words = ("install", "--dry-run", "--why", "--facts", folder("gtx-1080-ti-dropped"), "--json")
    kept = json.loads(run(*words, "--keep", "torch").stdout)
    assert "other-torch" not in {option["kind"] for option in kept["options"]["available"]}


def test_the_next_step_is_verify_in_the_same_environment() -> None:
    (step,) = next_steps(facts_of("rtx-5080"), "--python", "my env")
    argv = ("splatfix", "certify", "--level", "2", "--python", "my env")
    assert step.command and step.command.argv == argv
    facts = facts_of("rtx-5080")
    without = replace(facts.environment, torch=Fact(None, "", "torch is not installed"))
    assert next_steps(replace(facts, environment=without)) == ()


def test_a_complete_install_is_a_success(tmp_path: Path) -> None:
    """After it CUDA_HOME was "1 problem (1 of them mended by splatfix install itself)", exit 1."""
    saved = tmp_path / "facts.json"
    for facts, failed in ((with_rasterizer(package("mip")), 0), (healthy(), 1), (calling("mip", 3), 1)):
        write_json(saved, to_json(wrapped(facts)))
        result = diagnose(DiagnoseRequest(facts_file=saved))
        document = result.document()
        assert document["summary"]["fail"] == failed == document["exit_code"]
        assert ("✓ No problems found" in str(result)) is not bool(failed)


def test_the_next_step_names_what_training_lacks() -> None:
    """``Next: test training`` ended in "This environment lacks numpy, pillow"."""
    facts = facts_of("rtx-5080")
    bare = replace(facts.environment, packages=Fact((), "test"))
    first, *then = next_steps(replace(facts, environment=bare))
    assert first.text.endswith("which needs pillow") and first.line().endswith("pip install pillow")
    assert [step.line() for step in then] == ["splatfix certify"]


def test_a_current_folder_without_gpu_code_is_not_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='plain')\n")
    monkeypatch.chdir(tmp_path)
    document = json.loads(run("install", "--dry-run", "--why", "--target", "sm_120", "--json").stdout)
    assert document["plan"] is None
    assert set(document["options"]["subjects"]) <= {"gsplat"}  # which the tests' environment has


def test_the_why_command_asks_about_the_same_machine() -> None:
    saved = folder("rtx-3090-and-5090")
    why = diagnose(DiagnoseRequest(facts_file=saved, targets=(Arch(12, 0),))).content.why
    asked = ("--dry-run", "--why", "--target", "sm_120", "--facts", str(saved))
    assert why and why.command and why.command.argv[2:] == asked


def test_nothing_is_asked_of_a_checkout_that_install_refuses(tmp_path: Path) -> None:
    facts = facts_of("rtx-5080")
    summary = summarise((str(tmp_path),), make_context(facts), named=(str(tmp_path),))
    assert summary.refused and summary.refused.code == "not-an-extension" and not summary.named
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='plain')\n")
    summary = summarise((str(tmp_path),), make_context(facts), named=(str(tmp_path),))
    assert (summary.refused, summary.named) == (None, (str(tmp_path),))


def test_a_folder_of_checkouts_counts_only_when_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "setup.py").write_text("from setuptools import setup\nsetup(ext_modules=[])\n")
    monkeypatch.chdir(tmp_path)
    problem = run("install", ".", "--dry-run", "--why", "--target", "sm_120").exception
    assert isinstance(problem, SplatfixError) and int(problem.exit_code) == 2
    commands = {step.command.argv for step in problem.todo if step.command}
    for name in ("./one", "./two"):
        assert ("splatfix", "install", name, "--target", "sm_120") in commands
    document = json.loads(run("install", "--dry-run", "--why", "--target", "sm_120", "--json").stdout)
    assert document["plan"] is None
    assert set(document["options"]["subjects"]) <= {"gsplat"}  # which the tests' environment has
    assert "one" not in json.dumps(document["options"])
