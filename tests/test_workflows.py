"""The workflows take nothing that somebody else can change under them, and give a token to no step that does not need it."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TAKES_THE_TOKEN = ("actions/deploy-pages", "actions/attest-build-provenance", "pypa/gh-action-pypi-publish")


def jobs(file: Path) -> dict[str, dict[str, Any]]:
    document: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    # what a workflow may, each of its jobs may
    given = document["permissions"]
    return {name: {"permissions": given, **job} for name, job in document["jobs"].items()}


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_an_action_is_a_commit(file: Path) -> None:
    uses = re.findall(r"uses: (\S+)(.*)", file.read_text(encoding="utf-8"))
    assert uses
    for action, comment in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), (
            f"{action}: tags and branches can be moved"
        )
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), f"{action}: says of no commit which version it is"


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_job_with_a_token_runs_no_code_of_ours(file: Path) -> None:
    for name, job in jobs(file).items():
        if "write" not in job["permissions"].values():
            continue
        for step in job["steps"]:
            assert "run" not in step, f"{name} may write and runs a command"
            action = step["uses"].partition("@")[0]
            assert action in (*TAKES_THE_TOKEN, "actions/download-artifact"), (
                f"{name} may write and uses {action}"
            )


def test_a_release_is_built_by_what_has_a_hash() -> None:
    steps = jobs(ROOT / ".github" / "workflows" / "release.yml")["build"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    installs = [command for command in commands if "pip install" in command]
    assert installs == ["pip install --require-hashes -r .github/build-requirements.txt"]
    assert "python -m build --no-isolation" in commands
    backend = re.search(r'requires = \["([\w-]+)', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert backend
    pinned = (ROOT / ".github" / "build-requirements.txt").read_text(encoding="utf-8")
    assert re.search(rf"(?m)^{backend[1]}==\S+ --hash=sha256:[0-9a-f]{{64}}$", pinned)
