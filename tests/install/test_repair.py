"""``splatfix install --repair``: a package is put back as its wheel has it, from where it came, and that can be undone."""

import json
from pathlib import Path

import pytest

from splatfix.core.runner import ProcessRunner
from splatfix.facts import gather
from splatfix.install.environment import Environment
from splatfix.install.repair import plan_repair
from splatfix.install.wheels import write_wheel
from splatfix.plan.steps import FetchWheel, MakeDropin
from tests.plan.machines import refused

from .environments import make_environment, snapshot
from .test_cli import splatfix

SOURCE = b"answer = 42\n"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of ``tiny`` 1.0, in a folder that pip is configured to look into; there is no index."""
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "no-index").as_uri())
    return write_wheel(tmp_path / "wheels", "tiny", "1.0", {"tiny/__init__.py": SOURCE}, "A tiny package")


def pip_install(environment: Environment, *what: str) -> None:
    done = ProcessRunner().run(
        [environment.python, "-m", "pip", "install", "--no-deps", *what], timeout=120.0
    )
    assert done.ok, done.stderr


def altered(environment: Environment) -> Path:
    path = environment.purelib / "tiny" / "__init__.py"
    path.write_bytes(b"answer = 41\n")
    return path


def test_it_is_put_back_and_that_is_undone(
    environment: Environment, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pip_install(environment, "tiny==1.0")
    path = altered(environment)
    python = ("--python", environment.python)
    before = snapshot(environment)
    assert splatfix("install", "--repair", "Tiny", *python, "--dry-run", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "install" and document["dry_run"] is True
    kinds = [step["kind"] for step in document["plan"]["steps"]]
    assert kinds == ["fetch-wheel", "install-wheel", "check-import"] and snapshot(environment) == before

    assert splatfix("install", "--repair", "Tiny", *python, "--yes") == 0
    assert path.read_bytes() == SOURCE
    assert "$ splatfix diagnose" in capsys.readouterr().out
    altered(environment)
    assert splatfix("install", "--repair", "tiny", *python, "--yes") == 0, (
        "again, though the wheel that was fetched is gone"
    )
    assert path.read_bytes() == SOURCE
    assert splatfix("revert", *python) == splatfix("revert", *python) == 0
    assert snapshot(environment) == before, "with the edit"


def test_what_cannot_be_had_changes_nothing(environment: Environment, wheel: Path) -> None:
    pip_install(environment, "tiny==1.0")
    altered(environment)
    wheel.unlink()
    before = snapshot(environment)
    python = ("--python", environment.python)
    assert splatfix("install", "--repair", "tiny", *python, "--yes", "--json") == 1
    assert snapshot(environment) == before
    assert splatfix("install", "--resume", *python) == 2, "a repair is done again by its own command"
    assert splatfix("install", "--repair", "absent", *python) == 2
    (environment.purelib / "tiny-1.0.dist-info" / "INSTALLER").write_text("conda\n")
    problem = refused(plan_repair, "tiny", gather(environment.python))
    assert problem.code == "cannot-repair" and problem.todo[0].command is not None
    assert problem.todo[0].command.argv[0] == "conda"


def test_a_wheel_that_was_given_by_its_path_is_taken_from_there(
    environment: Environment, wheel: Path
) -> None:
    pip_install(environment, str(wheel))
    fetch = plan_repair("tiny", gather(environment.python)).steps[0]
    assert isinstance(fetch, FetchWheel) and fetch.requirement == f"tiny @ {wheel.as_uri()}"
    folder = environment.purelib / "tiny-1.0.dist-info"
    (folder / "direct_url.json").write_text(
        json.dumps({"url": "file:///src", "dir_info": {"editable": True}})
    )
    assert refused(plan_repair, "tiny", gather(environment.python)).code == "cannot-repair"
    (folder / "direct_url.json").write_text(json.dumps({"url": "https://host/r", "vcs_info": {"vcs": "git"}}))
    assert refused(plan_repair, "tiny", gather(environment.python)).code == "cannot-repair"


def test_a_drop_in_is_made_anew(tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "env", torch=True)
    python = ("--python", environment.python)
    assert splatfix("install", "fused_ssim", "--backend", "pure", *python, "--yes") == 0
    path = environment.purelib / "fused_ssim" / "_ssim.py"
    made = path.read_bytes()
    path.write_bytes(made.replace(b"return", b"return  "))
    step = plan_repair("fused-ssim", gather(environment.python)).steps[0]
    assert isinstance(step, MakeDropin) and step.backend == "pure"
    assert splatfix("install", "--repair", "fused-ssim", *python, "--yes") == 0
    assert path.read_bytes() == made
