"""An installed nerfstudio, edited where it lies: in the journal, and taken back byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from splatfix.install.wheels import write_wheel
from splatfix.knowledge.breakages import breakage
from tests.conftest import Splatfix

from .environments import make_environment, pip, run_in, snapshot

pytest.importorskip("torch")

LOAD = b'import torch\n\n\ndef load(load_path):\n    return torch.load(load_path, map_location="cpu")\n'
WORKS = """
import numpy, torch, sys
from nerfstudio.utils.eval_utils import load
torch.save({"lr": numpy.float64(1.0)}, sys.prefix + "/x.pt")
try:
    print(load(sys.prefix + "/x.pt"))
except Exception as error:
    print(type(error).__name__)
"""


def test_it_is_edited_and_taken_back(tmp_path: Path, splatfix: Splatfix) -> None:
    target = make_environment(tmp_path / "env", torch=True)
    record = breakage("nerfstudio-torch-load").installed
    assert record is not None
    files = dict.fromkeys(record.files, LOAD) | {"nerfstudio/__init__.py": b""}
    wheel = write_wheel(tmp_path, "nerfstudio", "1.1.5", files, "a stand-in")
    assert pip(target, "install", "--no-index", "--no-deps", "--no-compile", str(wheel)).ok
    before = snapshot(target)
    assert run_in(target, WORKS) == "UnpicklingError"
    (target.prefix / "x.pt").unlink()
    python = ("--python", target.python)
    diagnose = ("diagnose", "--only", "installed-package-breaks", *python)
    assert "splatfix install nerfstudio --in-place" in splatfix(*diagnose).stdout
    done = splatfix("install", "nerfstudio", "--in-place", *python)
    assert "Edited the installed nerfstudio" in done.stdout
    assert "1.0" in run_in(target, WORKS)
    (target.prefix / "x.pt").unlink()
    assert "1 check passed" in splatfix(*diagnose).stdout
    assert splatfix("revert", *python).returncode == 0
    assert snapshot(target) == before
    assert splatfix("install", "nerfstudio", *python).returncode == 2, "not a folder, and not to be edited"
