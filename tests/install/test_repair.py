"""``splatfix install --repair``: a package is put back as its wheel has it, from where it came, and that can be undone."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.facts import gather
from splatfix.install import execute
from splatfix.install.environment import Environment
from splatfix.install.repair import plan_repair
from splatfix.install.wheels import write_wheel
from splatfix.model.steps import FetchWheel, MakeDropin
from tests.cli.conftest import Document
from tests.conftest import Splatfix
from tests.files import put
from tests.plan.machines import argv, refused

from .environments import make_environment, pip, snapshot

SOURCE = b"answer = 42\n"
PIP_INSIDE = True


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of ``tiny`` 1.0, in a folder that pip is configured to look into; there is no index."""
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "no-index").as_uri())
    return write_wheel(tmp_path / "wheels", "tiny", "1.0", {"tiny/__init__.py": SOURCE}, "A tiny package")


def altered(environment: Environment) -> Path:
    path = environment.purelib / "tiny" / "__init__.py"
    path.write_bytes(b"answer = 41\n")
    return path


@pytest.mark.usefixtures("wheel")
def test_repair_and_revert(environment: Environment, splatfix: Splatfix, document: Document) -> None:
    assert pip(environment, "install", "tiny==1.0").ok
    path = altered(environment)
    python = ("--python", environment.python)
    before = snapshot(environment)
    planned = document("install", "--repair", "Tiny", *python, "--dry-run")
    assert planned["command"] == "install" and planned["dry_run"] is True
    kinds = [step["kind"] for step in planned["plan"]["steps"]]
    assert kinds == ["fetch-wheel", "install-wheel", "check-import"] and snapshot(environment) == before

    for _ in range(2):  # again, though the wheel that was fetched is gone
        altered(environment)
        done = splatfix("install", "--repair", "Tiny", *python, "--yes")
        assert path.read_bytes() == SOURCE and "$ splatfix diagnose" in done.stdout
    for _ in range(2):
        assert splatfix("revert", *python).returncode == 0
    assert snapshot(environment) == before, "with the edit"


def test_without_a_wheel_nothing_changes(environment: Environment, wheel: Path, splatfix: Splatfix) -> None:
    assert pip(environment, "install", "tiny==1.0").ok
    altered(environment)
    wheel.unlink()
    before, python = snapshot(environment), ("--python", environment.python)
    assert splatfix("install", "--repair", "tiny", *python, "--yes").returncode == 1
    assert snapshot(environment) == before
    # a repair is done again by its own command
    assert splatfix("install", "--resume", *python).returncode == 2
    assert splatfix("install", "--repair", "absent", *python).returncode == 2
    (environment.purelib / "tiny-1.0.dist-info" / "INSTALLER").write_text("conda\n")
    problem = refused(plan_repair, "tiny", gather(environment.python))
    assert problem.code == "cannot-repair" and argv(problem.todo[0])[0] == "conda"


def test_a_wheel_given_by_its_path_is_taken_again(environment: Environment, wheel: Path) -> None:
    assert pip(environment, "install", str(wheel)).ok
    fetch = plan_repair("tiny", gather(environment.python)).steps[0]
    assert isinstance(fetch, FetchWheel) and fetch.requirement == f"tiny @ {wheel.as_uri()}"
    altered(environment)
    execute(plan_repair("tiny", gather(environment.python)), gather(environment.python))
    assert plan_repair("tiny", gather(environment.python)).steps[0] == fetch, "pip was given a copy since"
    write_wheel(wheel.parent / "other", "tiny", "2.0", {}, "Another").replace(wheel)
    facts, before = gather(environment.python), snapshot(environment)
    error = refused(execute, plan_repair("tiny", facts), facts)
    assert error.code == "another-wheel" and snapshot(environment) == before
    editable = {"url": "file:///src", "dir_info": {"editable": True}}
    for origin in (editable, {"url": "https://host/r", "vcs_info": {"vcs": "git"}}):
        put(environment.purelib / "tiny-1.0.dist-info", {"direct_url.json": json.dumps(origin)})
        assert refused(plan_repair, "tiny", gather(environment.python)).code == "cannot-repair"


def test_two_wheels_of_one_installation_are_fetched(environment: Environment, wheel: Path) -> None:
    """Each is found, though both are kept until it ends."""
    write_wheel(wheel.parent, "other", "1.0", {"other/__init__.py": SOURCE}, "Another")
    assert pip(environment, "install", "tiny==1.0", "other==1.0").ok
    altered(environment)
    facts = gather(environment.python)
    tiny, other = (plan_repair(name, facts) for name in ("tiny", "other"))
    outcome = execute(replace(tiny, steps=(*tiny.steps, *other.steps)), facts, reinstall=True)
    assert [item.wheel for item in outcome.items] == [wheel.name, wheel.name.replace("tiny", "other")]


@pytest.mark.slow
def test_a_drop_in_is_made_anew(tmp_path: Path, splatfix: Splatfix) -> None:
    environment = make_environment(tmp_path / "env", torch=True)
    python = ("--python", environment.python)
    assert splatfix("install", "fused_ssim", "--backend", "pure", *python, "--yes").returncode == 0
    path = environment.purelib / "fused_ssim" / "_ssim.py"
    made = path.read_bytes()
    path.write_bytes(made.replace(b"return", b"return  "))
    step = plan_repair("fused-ssim", gather(environment.python)).steps[0]
    assert isinstance(step, MakeDropin) and step.backend == "pure"
    assert splatfix("install", "--repair", "fused-ssim", *python, "--yes").returncode == 0
    assert path.read_bytes() == made
