"""Every command, started in a folder full of traps: nothing of that folder runs."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from splatfix.install.environment import Environment
from tests.conftest import ROOT
from tests.files import put
from tests.install.environments import make_environment, write_extension
from tests.install.test_cli import fake_torch
from tests.tables import data

pytestmark = pytest.mark.skipif(os.name != "posix", reason="programs and links as POSIX has them")

TRAPS: dict[str, Any] = data(__file__)


@pytest.fixture
def sprung(tmp_path: Path) -> Path:
    """A folder in which each trap that runs leaves a file of its name."""
    folder = tmp_path / "sprung"
    folder.mkdir()
    return folder


@pytest.fixture
def traps(tmp_path: Path, sprung: Path) -> Path:
    """A folder that looks like a checkout and runs code wherever something is loaded or started from it."""
    folder = tmp_path / "traps"
    leave = "open('{}/{}', 'w').close()\n"
    files = {
        f"{name}.py": leave.format(sprung, f"{name}.py") + "raise SystemExit(9)\n"
        for name in TRAPS["modules"]
    }
    files |= dict.fromkeys(("pip/__init__.py", "pip/__main__.py"), leave.format(sprung, "pip"))
    files |= {
        "evil.pth": "import os; " + leave.format(sprung, "pth"),
        "start.py": leave.format(sprung, "start"),
    }
    files |= {name: text.format(folder=folder, sprung=sprung) for name, text in TRAPS["files"].items()}
    put(folder, files)
    hooks = (".git/hooks/fsmonitor", ".git/hooks/post-checkout", ".git/hooks/post-index-change")
    put(
        folder,
        {name: f"#!/bin/sh\n: > {sprung / Path(name).name}\n" for name in (*TRAPS["programs"], *hooks)},
    )
    for name in (*TRAPS["programs"], *hooks):
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Environment:
    """An environment whose torch is not the one that was installed, and so has to be imported."""
    made = make_environment(tmp_path / "env", pip=True)
    fake_torch(made, "2.11.0+cpu", None)
    (made.purelib / "torch" / "__init__.py").write_text("__version__ = '2.11.0+cpu'\n")
    return made


def run(words: list[str], cwd: Path, tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, in which only splatfix's own imports do not look into ``cwd``."""
    program = (
        f"import sys; sys.path[0] = {str(ROOT)!r}; import os; os.environ['PYTHONINSPECT'] = '1'\n"
        "from splatfix.cli import main; main()"
    )
    path = f".{os.pathsep}{os.environ['PATH']}{os.pathsep}"
    env = {**os.environ, "SPLATFIX_CACHE": str(tmp_path / "cache"), "PATH": path}
    env |= {"PYTHONSTARTUP": str(cwd / "start.py"), "GIT_DIR": str(cwd / ".git")}
    env |= {"DOCKER_HOST": "unix:///nowhere", **variables}
    return subprocess.run(
        [sys.executable, "-c", program, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


FOR_ENVIRONMENT = {"diagnose", "install", "revert", "certify"}


@pytest.mark.parametrize(
    "table", ["quick", *(pytest.param(name, marks=pytest.mark.slow) for name in ("all", "with-torch"))]
)
def test_nothing_of_the_current_folder_runs(
    table: str, traps: Path, sprung: Path, target: Environment, tmp_path: Path
) -> None:
    source = write_extension(tmp_path / "source")
    for name in ("optparse", "pip"):  # of pip itself; what setup.py imports is its own affair
        (source / f"{name}.py").write_text(
            f"open({str(sprung / name)!r}, 'w').close()\nraise SystemExit(9)\n"
        )
    python = sys.executable if table == "with-torch" else target.python
    for command, code in TRAPS[table]:
        words = command.split()
        named = words[0] in FOR_ENVIRONMENT and "--container" not in words
        done = run([*words, *(["--python", python] if named else [])], traps, tmp_path)
        assert (command, sorted(path.name for path in sprung.iterdir())) == (command, [])
        assert (command, done.returncode) == (command, code), done.stderr


def test_started_as_a_module_it_imports_nothing_of_there(traps: Path, sprung: Path) -> None:
    (traps / "splatfix.py").unlink()  # this one is what was asked for
    argv, env = [sys.executable, "-m", "splatfix", "--version"], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=traps, env=env, capture_output=True, check=False)
    assert (done.returncode, [path.name for path in sprung.iterdir()]) == (0, [])
