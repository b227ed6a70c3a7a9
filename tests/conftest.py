"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import setuptools  # noqa: F401 - before anything imports the standard library's distutils, which it replaces

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True, scope="session")
def no_environment_is_activated() -> None:
    """Tests mean the interpreter that runs them, whatever the shell has activated."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        os.environ.pop(name, None)


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_is_heard() -> None:
    """A run in the background inherits that SIGINT is ignored, and so would every process that a test interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def empty_venv(tmp_path: Path) -> Path:
    """A venv without pip and without any package; its interpreter's path."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


@pytest.fixture
def site_packages(empty_venv: Path) -> Path:
    """The site-packages folder of ``empty_venv``."""
    return next((empty_venv.parent.parent / "lib").glob("python*")) / "site-packages"


@pytest.fixture
def splatfix() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line as a person does: ``splatfix("diagnose", "--json")``."""

    def run(
        *words: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        # readline tells every child the width of a terminal, whether there is one or not
        env = {name: value for name, value in (env or os.environ).items() if name != "COLUMNS"}
        return subprocess.run(
            [sys.executable, "-m", "splatfix", *words],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture
def script() -> Callable[[Path, str], Path]:
    """Write an executable script: ``script(path, text)``."""

    def write(path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        path.chmod(0o755)
        return path

    return write
