"""gsplat's own Python with the drop-in as its compiled module: verified, trained with, and the record of its tests."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest

from splatfix.core.runner import Runner
from splatfix.knowledge.dropins import dropin_named
from tests.certify.conftest import put_dropin
from tools.gsplat_tests import RECORD, results_of

ROOT = Path(__file__).resolve().parents[2]
PROBE = ["splatfix/certify/kernel_probe.py", "gsplat", "gsplat.csrc"]
TRAIN = "-m smoke_trainer figurine --iterations 25 --resolution 64 --renderer gsplat"


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Those with which a child finds gsplat with the drop-in, in a folder of their own: the tests' gsplat stays as it is."""
    spec = importlib.util.find_spec("gsplat")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("gsplat is not installed")
    site = tmp_path_factory.mktemp("site")
    (source,) = spec.submodule_search_locations
    shutil.copytree(source, site / "gsplat", ignore=shutil.ignore_patterns("csrc", "__pycache__"))
    dropin = dropin_named("gsplat")
    assert dropin is not None
    put_dropin(dropin, site)
    return {"PYTHONPATH": f"{site}:{ROOT}", "PATH": "", "OMP_WAIT_POLICY": "PASSIVE"}


def test_verify_holds_it_against_the_float64_reference(variables: dict[str, str]) -> None:
    done = Runner().run([sys.executable, *PROBE], timeout=300, env=variables, cwd=ROOT)
    row = json.loads(done.stdout.rpartition("\n{")[2].join(("{", "")))
    assert (row["outcome"], row["kind"]) == ("met", "drop-in"), row
    assert 0 < row["value_error"] < 1e-5 and 0 < row["gradient_error"] < 1e-4


@pytest.mark.slow
def test_the_smoke_trainer_renders_by_it_on_a_cpu(variables: dict[str, str], tmp_path: Path) -> None:
    argv = [sys.executable, *TRAIN.split(), "--out", str(tmp_path)]
    done = Runner().run(argv, timeout=300, env=variables, cwd=ROOT)
    assert done.ok, done.stderr
    result = json.loads((tmp_path / "result.json").read_text("utf-8"))
    renderer = result["implementations"]["renderer"]
    said = (renderer["engine"], renderer["module"], renderer["version"])
    assert said == ("torch-cpu", "gsplat.csrc", "1.5.3")
    assert renderer["calls"] > 25
    assert result["heldout"]["psnr"] > result["initial_heldout"]["psnr"] + 1


def test_gsplats_own_tests() -> None:
    tests = json.loads(RECORD.read_text("utf-8"))["tests"]
    assert tests["failed"] == {} and tests["passed"] > 150
    assert all("packed_2dgs" in name for name in tests["refused"])


def test_results_of_pytest_are_told_apart(tmp_path: Path) -> None:
    document = tmp_path / "results.xml"
    cases = "".join(
        f'<testcase name="{name}"><failure message="{message}"/></testcase>'
        for name, message in (
            ("a", "NotImplementedError: splatfix has no b"),
            ("c", "AssertionError: 1 is not 2"),
        )
    )
    document.write_text(f'<testsuites><testcase name="fine"/>{cases}</testsuites>', encoding="utf-8")
    found = results_of(document)
    assert found["passed"] == 1 and found["refused"] == {"a": "NotImplementedError: splatfix has no b"}
    assert found["failed"] == {"c": "AssertionError: 1 is not 2"} and found["skipped"] == {}
