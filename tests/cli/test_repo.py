"""``splatfix diagnose --repo``: a checkout judged together with the machine, and saved with the facts."""

import json
from pathlib import Path

from tests.conftest import Splatfix

SETUP = """
from torch.utils.cpp_extension import CUDAExtension
setup(name="simple_knn", ext_modules=[CUDAExtension("simple_knn._C", ["simple_knn.cu"])])
"""


def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "stack"
    (root / "submodules" / "simple-knn").mkdir(parents=True)
    (root / "submodules" / "simple-knn" / "setup.py").write_text(SETUP)
    (root / "train.py").write_text("from simple_knn._C import distCUDA2\nfrom gsplat import rasterization\n")
    return root


def test_a_checkout_is_judged_and_saved(splatfix: Splatfix, tmp_path: Path, empty_venv: Path) -> None:
    saved = tmp_path / "facts.json"
    where = ("--python", empty_venv, "--repo", checkout(tmp_path))
    done = splatfix("diagnose", *where, "--only", "checkout", "--save", saved, "--json")
    findings = json.loads(done.stdout)["findings"]
    told = {(item["check"], item["subject"]) for item in findings if item["status"] == "fail"}
    assert told == {
        ("source-incomplete", "submodules/simple-knn"),
        ("ext-not-installed", "gsplat"),
        ("ext-not-installed", "simple_knn"),
    }
    again = splatfix("diagnose", "--facts", str(saved), "--only", "checkout", "--json")
    assert json.loads(again.stdout)["findings"] == findings
