"""A drop-in in an embedded Python, as ComfyUI's portable folder brings one: ``._pth``, the standard library in a zip, no headers.

Its layout is simulated on Linux, where CPython reads a ``._pth`` of the interpreter's whole name. Never run on Windows.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from splatfix.install.environment import open_environment
from tests.conftest import Splatfix
from tests.files import put
from tests.install.environments import Files, snapshot
from tests.tables import data

TEXTS: dict[str, str] = data(__file__)["texts"]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of such a folder, in which this one's torch and pip are shown."""
    if sys.version_info < (3, 11):
        pytest.skip("CPython reads ._pth files outside of Windows since 3.11")
    folder = tmp_path / "ComfyUI_windows_portable" / "python_embeded"
    site = folder / "Lib" / "site-packages"
    site.mkdir(parents=True)
    interpreter = folder / "python.exe"
    shutil.copy(Path(sys.executable).resolve(), interpreter)
    library = Path(sysconfig.get_paths()["stdlib"])
    left_out = {"site-packages", "test", "lib-dynload", "__pycache__", "idlelib", "tkinter"}
    with zipfile.ZipFile(folder / "python311.zip", "w") as archive:
        for path in sorted(library.rglob("*.py")):
            name = path.relative_to(library)
            if left_out.intersection(name.parts):
                continue
            text = path.read_bytes()
            if str(name) == "sysconfig.py":
                before, _, rest = text.decode().partition("'posix_prefix': {")
                text = (before + TEXTS["scheme"] + rest[rest.index("},") :]).encode()
            archive.writestr(str(name), text)
    for path in (library / "lib-dynload").glob("*.so"):
        shutil.copy(path, folder)
    lines = ["python311.zip", ".", "Lib/site-packages", sysconfig.get_paths()["purelib"], "import site"]
    (folder / "python.exe._pth").write_text("\n".join(lines) + "\n")
    return interpreter


def ask(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_installed_and_undone_exactly(splatfix: Splatfix, python: Path, tmp_path: Path) -> None:
    assert ask(python, "import sys; print(sys.prefix, sys.flags.isolated)") == f"{python.parent} 1"
    assert not list(python.parent.rglob("Python.h")) and not (python.parent / "include").exists()
    put(tmp_path / "source", {"setup.py": TEXTS["setup"], "ext.cpp": ""})
    refused = splatfix("install", tmp_path / "source", "--python", python, "--json")
    assert json.loads(refused.stdout)["error"]["code"] == "no-python-headers", refused.stdout + refused.stderr
    environment = open_environment(str(python))
    assert environment.purelib == python.parent / "Lib" / "site-packages"
    before: Files = snapshot(environment)
    words = ("diff_gaussian_rasterization@v1", "simple_knn", "--backend", "pure", "--python", python, "--yes")
    done = splatfix("install", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    where = ask(python, "import diff_gaussian_rasterization, simple_knn._C as c; print(c.__file__)")
    assert Path(where).is_relative_to(environment.purelib)
    assert splatfix("revert", "--python", python).returncode == 0
    assert snapshot(environment) == before
