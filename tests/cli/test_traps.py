"""Every command, started in a folder full of traps: nothing of that folder runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from splatfix.install.environment import Environment
from tests.conftest import ROOT
from tests.install.environments import make_environment, write_extension
from tests.install.test_cli import fake_torch

pytestmark = pytest.mark.skipif(os.name != "posix", reason="programs and links as POSIX has them")

# fmt: off
MODULES = [
    "json", "torch", "typing", "setuptools", "sitecustomize", "usercustomize", "numpy", "platform", "sysconfig",
    "runpy", "wheel", "_distutils_hack", "importlib_metadata", "packaging", "rich", "typer", "docker",
    "smoke_trainer", "splatfix", "email", "zipfile", "subprocess", "PIL", "gsplat",
]
PROGRAMS = [
    "python", "python3", "python3.11", "nvcc", "git", "gcc", "g++", "cc", "c++", "clang", "nvidia-smi", "ldd",
    "getconf", "colmap", "vulkaninfo", "ninja", "ccache", "sccache", "uv", "pip3", "docker", "ptxas", "cuobjdump",
    "conda", "pixi", "poetry", "ld", "as", "sh",
]
# fmt: on


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
    (folder / "pip").mkdir(parents=True)
    (folder / ".git" / "hooks").mkdir(parents=True)
    for name in MODULES:
        (folder / f"{name}.py").write_text(
            f"open({str(sprung / name)!r} + '.py', 'w').close()\nraise SystemExit(9)\n"
        )
    for name in ("__init__", "__main__"):
        (folder / "pip" / f"{name}.py").write_text(f"open({str(sprung / 'pip')!r}, 'w').close()\n")
    (folder / "evil.pth").write_text(f"import os; open({str(sprung / 'pth')!r}, 'w').close()\n")
    hooks = (".git/hooks/fsmonitor", ".git/hooks/post-checkout", ".git/hooks/post-index-change")
    for name in (*PROGRAMS, *hooks):
        program = folder / name
        program.write_text(f"#!/bin/sh\n: > {sprung / program.name}\n")
        program.chmod(0o755)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".git" / "config").write_text(
        f"[core]\n\tfsmonitor = {folder}/.git/hooks/fsmonitor\n\thooksPath = {folder}/.git/hooks\n"
        f"\tsshCommand = touch {sprung}/ssh\n\tpager = touch {sprung}/pager\n"
        f'[remote "origin"]\n\turl = ext::touch {sprung}/ext\n'
    )
    (folder / "pip.conf").write_text(f"[global]\ntarget = {sprung}/pip-target\n")
    (folder / "setup.cfg").write_text(
        f"[install]\nprefix = {sprung}/prefix\n[easy_install]\nprefix = {sprung}/prefix\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p json\n")
    (folder / "pyvenv.cfg").write_text(f"home = {folder}\n")
    (folder / "start.py").write_text(f"open({str(sprung / 'start')!r}, 'w').close()\n")
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Environment:
    """An environment whose torch is not the one that was installed, and so has to be imported."""
    made = make_environment(tmp_path / "env")
    fake_torch(made, "2.11.0+cpu", None)
    (made.purelib / "torch" / "__init__.py").write_text("__version__ = '2.11.0+cpu'\n")
    return made


def run(words: list[str], cwd: Path, tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, in which only splatfix's own imports do not look into ``cwd``."""
    program = (
        f"import sys; sys.path[0] = {str(ROOT)!r}; import os; os.environ['PYTHONINSPECT'] = '1'\n"
        "from splatfix.cli import main; main()"
    )
    path = os.environ["PATH"]
    env = {
        **os.environ,
        "SPLATFIX_CACHE": str(tmp_path / "cache"),
        "PATH": f".{os.pathsep}{path}{os.pathsep}",
        "PYTHONSTARTUP": str(cwd / "start.py"),
        "GIT_DIR": str(cwd / ".git"),
        "DOCKER_HOST": "unix:///nowhere",
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-c", program, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


# of a person, in order: (command, its exit code)
QUICK = (("diagnose", 0), ("revert --list", 0), ("--help", 0))
ALL = (
    ("diagnose --imports -v", 0),
    ("diagnose --repo . --save ../facts.json --record ../recorded --json", 0),
    ("inspect .", 3),
    ("install --dry-run", 2),
    ("install --dry-run --why --json", 0),
    ("install --resume", 2),
    ("install ../source --yes", 0),
    ("revert --list", 0),
    ("revert --dry-run", 0),
    ("revert", 0),
    ("certify --level 2 --device cpu", 1),
    ("certify", 3),
    ("certify --container cpu", 3),
    ("diagnose --list", 0),
    ("cache list", 0),
    ("cache clear --yes", 0),
    ("scenes list", 0),
    ("scenes check", 0),
    ("monitor --interval 0.05 /bin/true", 0),
)
WITH_TORCH = (
    ("scenes export study --out ../scenes", 0),
    ("certify --level 2 --device cpu", 0),
    ("certify --data ../scenes --iterations 1 --resolution 16 --device cpu --out ../report", 3),
)
FOR_ENVIRONMENT = {"diagnose", "install", "revert", "certify"}


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(ALL, marks=pytest.mark.slow, id="all"),
        pytest.param(WITH_TORCH, marks=pytest.mark.slow, id="with torch"),
    ],
)
def test_nothing_of_the_current_folder_runs(
    commands: tuple[tuple[str, int], ...], traps: Path, sprung: Path, target: Environment, tmp_path: Path
) -> None:
    source = write_extension(tmp_path / "source")
    for name in ("optparse", "pip"):  # of pip itself; what setup.py imports is its own affair
        (source / f"{name}.py").write_text(
            f"open({str(sprung / name)!r}, 'w').close()\nraise SystemExit(9)\n"
        )
    python = sys.executable if commands is WITH_TORCH else target.python
    for command, code in commands:
        words = command.split()
        named = words[0] in FOR_ENVIRONMENT and "--container" not in words
        done = run([*words, *(["--python", python] if named else [])], traps, tmp_path)
        assert (command, sorted(path.name for path in sprung.iterdir())) == (command, [])
        assert (command, done.returncode) == (command, code), done.stderr


def test_started_as_a_module_it_imports_nothing_of_there(traps: Path, sprung: Path) -> None:
    (traps / "splatfix.py").unlink()  # this one is what was asked for
    done = subprocess.run(
        [sys.executable, "-m", "splatfix", "--version"],
        cwd=traps,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, [path.name for path in sprung.iterdir()]) == (0, [])
