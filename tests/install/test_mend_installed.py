"""An installed nerfstudio, edited where it lies: in the journal, and taken back byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from splatfix.install.wheels import write_wheel
from splatfix.knowledge.breakages import breakage

from .environments import make_environment, run_in, snapshot
from .test_cli import splatfix
from .test_dropins import pip

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


def test_it_is_edited_and_taken_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert splatfix("diagnose", "--only", "installed-package-breaks", *python) == 0
    assert "splatfix install nerfstudio --in-place" in capsys.readouterr().out
    assert splatfix("install", "nerfstudio", "--in-place", *python) == 0
    assert "Edited the installed nerfstudio" in capsys.readouterr().out
    assert "1.0" in run_in(target, WORKS)
    (target.prefix / "x.pt").unlink()
    assert splatfix("diagnose", "--only", "installed-package-breaks", *python) == 0
    assert "1 check passed" in capsys.readouterr().out
    assert splatfix("revert", *python) == 0
    assert snapshot(target) == before
    assert splatfix("install", "nerfstudio", *python) == 2, "not a folder, and not to be edited"
