"""``project write`` keeps what is not its own, is journaled and undone; and with the real uv what it writes works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import CompletedProcess
from zipfile import ZipFile

import pytest

from splatfix.install import project as project_module
from splatfix.install.environment import project_environment
from splatfix.install.project import write_project
from tests.conftest import Splatfix
from tests.install.environments import Files, snapshot
from tests.plan.machines import refused

PYPROJECT = """\
# of the lab
[project]
name = "mystack"
version = "0.1"
requires-python = ">=3.11"
dependencies = [
    "torch==2.1.2",  # the paper's
    "simple-knn",
]

[tool.uv.sources]
simple-knn = { path = "submodules/simple-knn" }  # ours
"""
SETUP = """
import os, pathlib, torch
from setuptools import setup
log = pathlib.Path(os.environ["BUILD_LOG"])
log.write_text(log.read_text() + torch.__version__ + " " + os.environ.get("TORCH_CUDA_ARCH_LIST", "unset") + "\\n")
# from torch.utils.cpp_extension import CUDAExtension
setup(name="simple_knn", py_modules=["simple_knn"])
"""


def snapshot_of(folder: Path) -> Files:
    return snapshot(project_environment(folder))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    source = folder / "submodules" / "simple-knn"
    source.mkdir(parents=True)
    (source / "setup.py").write_text(SETUP)
    (source / "simple_knn.py").write_text("import torch\nbuilt = True\n")
    (source / "knn.cu").touch()
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


def test_written_once_undone_exactly(splatfix: Splatfix, project: Path) -> None:
    before = snapshot_of(project)
    words = ("--target", "sm_120")
    assert splatfix("project", "check", project, *words).returncode == 1
    assert snapshot_of(project) == before
    written = splatfix("project", "write", project, *words, "--yes")
    assert written.returncode == 0, written.stdout + written.stderr
    text = (project / "pyproject.toml").read_text()
    assert "# of the lab" in text and "# the paper's" in text and "# ours" in text
    assert splatfix("project", "check", project, *words).returncode == 0
    again = splatfix("project", "write", project, *words, "--yes")
    assert again.returncode == 0 and "Nothing was written" in again.stdout
    assert (project / "pyproject.toml").read_text() == text
    assert "1 of 1" in splatfix("revert", "--project", project, "--list").stdout
    assert "Would revert" in splatfix("revert", "--project", project, "--dry-run").stdout
    assert splatfix("revert", "--project", project).returncode == 0
    assert snapshot_of(project) == before
    assert splatfix("revert", "--project", project, "--python", sys.executable).returncode == 2


def test_line_ends_and_strange_bytes_stay(splatfix: Splatfix, tmp_path: Path) -> None:
    content = b"# M\xfcnchen\r\ntorch==2.1.2\r\nnumpy\r\n"
    (tmp_path / "requirements.txt").write_bytes(content)
    splatfix("project", "write", tmp_path, "--target", "sm_86", "--yes")
    assert (tmp_path / "requirements.txt").read_bytes() == content.replace(b"numpy", b"numpy<2")


def test_somebody_elses_work_is_not_undone(splatfix: Splatfix, project: Path) -> None:
    splatfix("project", "write", project, "--target", "sm_120", "--yes")
    file = project / "pyproject.toml"
    file.write_text(file.read_text() + "# mine\n")
    refused = splatfix("revert", "--project", project)
    assert refused.returncode == 1 and "changed since" in refused.stderr
    assert file.read_text().endswith("# mine\n")


def test_a_write_that_fails_leaves_everything(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "requirements.txt").write_text("torch\n")
    before = {name: (project / name).read_bytes() for name in ("pyproject.toml", "requirements.txt")}

    def full(contents: dict[Path, bytes]) -> None:
        path, content = next(iter(contents.items()))
        path.write_bytes(content)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(project_module, "write_edits", full)
    with pytest.raises(OSError, match="No space"):
        write_project(project, dict.fromkeys(before, b"new"), before)
    assert {name: (project / name).read_bytes() for name in before} == before
    changed = refused(write_project, project, {"requirements.txt": b"new"}, {"requirements.txt": b"other"})
    assert changed.code == "changed-since"
    (project / "linked.txt").symlink_to(project / "requirements.txt")
    linked = refused(write_project, project, {"linked.txt": b"new"}, {"linked.txt": b"torch\n"})
    assert linked.code == "cannot-write-source"


@pytest.mark.parametrize("words", [("nowhere",), ("empty",)])
def test_wrong_folders(splatfix: Splatfix, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "empty").mkdir()
    answer = splatfix("project", "check", tmp_path / words[0], "--target", "sm_86")
    assert answer.returncode == 2 and "folder" in answer.stderr


def test_annotations_name_file_and_line(splatfix: Splatfix, project: Path) -> None:
    lines = splatfix(
        "project", "check", project, "--target", "sm_120", "--format", "github"
    ).stdout.splitlines()
    assert lines[0].startswith("::error file=pyproject.toml,line=7,title=torch-arch-unsupported::torch 2.1.2")
    assert any(line.startswith("::warning file=pyproject.toml,line=8,") for line in lines)


# With the real uv


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """Two indexes on this machine with stand-ins for torch (the newest on the first), and setuptools."""
    root = tmp_path / "index"
    for version in ("2.14.1", "2.15.0", "2.16.0"):
        _stand_in(root / "pypi" / "torch", version)
    for tag, version in (("cu132", "2.15.0+cu132"), ("cu130", "2.14.1+cu130")):
        _stand_in(root / "whl" / tag / "torch", version)
    (root / "pypi" / "setuptools").mkdir()
    argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "setuptools"]
    argv += ["-d", root / "pypi" / "setuptools"]
    if subprocess.run(argv, check=False).returncode:
        pytest.skip("pip reaches no index to get setuptools for uv's builds from")
    for folder in root.glob("*/**/"):
        names = [path.name for path in folder.glob("*.whl")]
        rows = [f'<a href="{name.replace("+", "%2B")}">{name}</a>' for name in names]
        (folder / "index.html").write_text("\n".join(rows))

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def _stand_in(folder: Path, version: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    info = f"torch-{version}.dist-info"
    files = {
        "torch/__init__.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)


@pytest.mark.slow
def test_uv_locks_and_syncs_what_was_written(
    splatfix: Splatfix, project: Path, index: str, tmp_path: Path
) -> None:
    """As it was, uv does not get far; as written it locks, installs torch of the index and an extension that was compiled
    against that very torch, and leaves both alone the second time."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    log = tmp_path / "builds.log"
    log.touch()
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("UV_", "PIP_", "VIRTUAL_ENV"))
    }
    cache = tempfile.mkdtemp(dir=tmp_path)
    variables = {**kept, "UV_CACHE_DIR": cache, "UV_DEFAULT_INDEX": f"{index}/pypi", "BUILD_LOG": str(log)}

    def run_uv(*words: str) -> CompletedProcess[str]:
        argv = [uv, *words, "--project", project, "--python", sys.executable]
        return subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=300, check=False)

    as_it_was = run_uv("lock")
    assert as_it_was.returncode != 0 and "torch" in as_it_was.stderr

    splatfix("project", "write", project, "--target", "sm_120", "--yes")
    file = project / "pyproject.toml"
    # the stand-ins are here, and everything else as it was written
    file.write_text(file.read_text().replace("https://download.pytorch.org", index))
    locked = run_uv("lock")
    assert locked.returncode == 0, locked.stderr
    assert log.read_text() == "", "nothing is built to lock"
    first, second = run_uv("sync"), run_uv("sync")
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "simple-knn" in first.stderr
    assert "simple-knn" not in second.stderr, "it survives"
    versions = [line.partition(" ") for line in log.read_text().splitlines()]
    python = project / ".venv" / "bin" / "python"
    ask = "import torch, simple_knn; print(torch.__version__)"
    there = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    assert {(torch, archs) for torch, _, archs in versions} == {(there, "12.0")} and "+cu" in there
