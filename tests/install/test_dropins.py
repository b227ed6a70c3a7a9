"""Drop-ins, for real: through the command line, in an environment with torch, listed and removed by pip.

That for gsplat's compiled module lies beside a gsplat whose Python looks for it as the real one does.
"""

from __future__ import annotations

import ast
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from splatfix.facts import gather
from splatfix.install import revert
from splatfix.install.dropins import make_dropin_wheel
from splatfix.install.environment import Environment
from splatfix.install.wheels import open_wheel, write_wheel
from splatfix.knowledge.dropins import DROPINS
from tests.cli.conftest import Document
from tests.conftest import Splatfix
from tests.files import put
from tests.tables import data

from .environments import fat_binary, make_environment, pip, run_in, snapshot, write_extension

pytest.importorskip("torch")


def test_drop_ins_from_the_command_line_to_removal(tmp_path: Path, document: Document) -> None:
    target = make_environment(tmp_path / "env", torch=True)
    before = snapshot(target)
    names, python = ("fused_ssim", "simple-knn"), ("--python", target.python)
    outcome = document("install", *names, "--backend", "pure", *python)["outcome"]
    assert [item["subject"] for item in outcome["items"]] == ["fused-ssim", "simple-knn"]
    assert outcome["items"][1]["modules"] == ["simple_knn", "simple_knn._C"]

    # mean squared distance to the three others, by hand
    assert run_in(target, data(__file__)["texts"]["check"]) == "1.0 [4.6667, 5.3333, 7.3333, 10.6667]"
    there = gather(target.python).environment.distributions.value or ()
    made = {item.name: item for item in there}
    assert made["fused_ssim"].made_by_splatfix == made["simple_knn"].made_by_splatfix == "drop-in"
    assert made["fused_ssim"].version.startswith("0+splatfix.")

    revert(target.python)
    assert snapshot(target) == before


@pytest.mark.slow
def test_pip_can_uninstall_a_drop_in(environment: Environment, tmp_path: Path) -> None:
    for host in {dropin.host for dropin in DROPINS if dropin.host}:
        put(environment.purelib, {f"{host}/__init__.py": ""})  # for what lies in another's folder
    before = snapshot(environment)
    for dropin in DROPINS:
        path = make_dropin_wheel(dropin, "0+splatfix.1", tmp_path / "wheels")
        assert pip(environment, "install", "--no-index", "--no-deps", str(path)).ok
        assert pip(environment, "uninstall", "-y", dropin.distribution).ok
    assert snapshot(environment) == before


def test_a_drop_in_stands_alone(tmp_path: Path) -> None:
    """Nothing in it needs splatfix: its files import torch, the standard library and each other."""
    known = {"torch", "scipy", "triton", "numpy", *sys.stdlib_module_names}
    for dropin in DROPINS:
        wheel = open_wheel(make_dropin_wheel(dropin, "0+splatfix.1", tmp_path))
        with zipfile.ZipFile(wheel.path) as archive:
            sources = [archive.read(name) for name in wheel.members if name.endswith(".py")]
        for source in sources:
            names: list[str] = []
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Import):
                    names += [item.name for item in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    names.append(node.module or "")
            assert {name.partition(".")[0] for name in names} <= {*known, dropin.host}, dropin.name


BACKEND = "try:\n    from gsplat import csrc as _C\nexcept ImportError:\n    _C = None\n"
NAMES = "from gsplat.cuda._backend import _C; print(*(hasattr(_C, name) for name in ('adam', 'compute_relocation', 'PINHOLE')))"
DIAGNOSE = ("diagnose", "--only", "drop-in-without-host", "--python")
WHY = data(__file__)["texts"]["why"]


def put_gsplat(target: Environment, version: str, folder: Path, backend: str = BACKEND) -> None:
    """As PyPI's wheel: Python alone."""
    files = {
        "gsplat/__init__.py": b"from .version import __version__\n",
        "gsplat/version.py": f"__version__ = {version!r}\n".encode(),
        "gsplat/cuda/__init__.py": b"",
        "gsplat/cuda/_backend.py": backend.encode(),
    }
    wheel = write_wheel(folder, "gsplat", version, files, "a stand-in")
    for old in target.purelib.glob("gsplat-*.dist-info"):
        shutil.rmtree(old)
    shutil.unpack_archive(wheel, target.purelib, "zip")


@pytest.mark.slow
def test_gsplat_and_its_releases(tmp_path: Path, splatfix: Splatfix, document: Document) -> None:
    target = make_environment(tmp_path / "env", torch=True)
    put_gsplat(target, "1.5.3", tmp_path)
    before = snapshot(target)
    assert run_in(target, "from gsplat.cuda._backend import _C; print(_C)") == "None"
    install = ("install", "gsplat", "--backend", "auto", "--python", target.python)
    (item,) = document(*install)["outcome"]["items"]
    assert (item["subject"], item["modules"]) == ("splatfix-gsplat-csrc", ["gsplat.csrc"])
    assert run_in(target, NAMES) == "True False True"
    changed = {name for name, value in snapshot(target).items() if before.get(name) != value}
    assert changed and all("gsplat/csrc" in name or "splatfix_gsplat_csrc" in name for name in changed)
    listed = gather(target.python).environment.distributions.value or ()
    assert {item.dropin for item in listed} == {"", "gsplat"}

    put_gsplat(target, "1.4.0", tmp_path)
    assert run_in(target, NAMES) == "False True True", "the names of 1.4.0"
    put_gsplat(target, "1.6.0", tmp_path)
    problem = run_in(target, WHY)
    assert "gsplat 1.6.0 is installed" in problem and "pip uninstall splatfix-gsplat-csrc" in problem
    assert "gsplat<=1.5.3" in pip(target, "check").stdout, "pip says it too"
    done = splatfix(*DIAGNOSE, target.python)
    assert done.returncode == 1 and "does not run with splatfix-gsplat-csrc" in done.stdout
    assert document(*install)["error"]["code"] == "host-release-not-served"

    put_gsplat(target, "1.5.3", tmp_path)
    revert(target.python)
    assert snapshot(target) == before


def test_a_compiled_gsplat_comes_first(tmp_path: Path, splatfix: Splatfix, document: Document) -> None:
    target = make_environment(tmp_path / "env", torch=True)
    put_gsplat(target, "1.5.3", tmp_path)
    install = ("install", "gsplat", "--backend", "pure", "--python", target.python)
    assert document(*install)["exit_code"] == 0
    source, built = write_extension(tmp_path / "csrc", name="csrc", extra=fat_binary(90)), tmp_path / "built"
    for name, changes in (
        ("probe.c", {'"_C"': '"csrc"', "PyInit__C": "PyInit_csrc"}),
        ("setup.py", {"csrc._C": "csrc", 'packages=["csrc"],': ""}),
    ):
        text = (source / name).read_text()
        for old, new in changes.items():
            text = text.replace(old, new)
        (source / name).write_text(text)
    shutil.rmtree(source / "csrc")
    options = ("--no-index", "--no-build-isolation", "--target", str(built))
    assert pip(target, "install", *options, str(source)).ok
    (library,) = built.glob("csrc.*.so")
    shutil.copyfile(library, target.purelib / "gsplat" / library.name)
    assert run_in(target, "from gsplat.cuda._backend import _C; print(_C.answer())") == "42"
    diagnosed = splatfix(*DIAGNOSE, target.python)
    assert diagnosed.returncode == 0
    assert "has its own compiled module, which is used" in diagnosed.stdout
    revert(target.python)
    assert document(*install)["error"]["code"] == "host-compiled"


def test_what_gsplat_lacks_to_draw_stops_it(tmp_path: Path, document: Document) -> None:
    """gsplat 1.5.3 imports packaging when it first draws, and does not ask pip for it."""
    target = make_environment(tmp_path / "env", torch=True)
    put_gsplat(target, "1.5.3", tmp_path, backend="import absent_here\n" + BACKEND)
    before = snapshot(target)
    done = document("install", "gsplat", "--backend", "pure", "--yes", "--python", target.python)
    assert done["exit_code"] == 1 and "No module named 'absent_here'" in done["error"]["what"]
    assert "Install absent_here with pip" in str(done["error"]["todo"])
    assert snapshot(target) == before
