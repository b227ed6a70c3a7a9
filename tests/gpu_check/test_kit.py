"""The kit without a GPU: how a step ends is what the record says, nothing outlasts its time, and what travels is small."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import standins

from . import travel
from .record import KIND, exit_code_of, table
from .test_visit_rest import OTHERS
from .visit import ROOT

RECORDS = sorted((ROOT / "tests" / "records").glob("gpu_check_*.json"))
PYTEST = f"{sys.executable} -m pytest -c {ROOT}/tests/gpu_check/pytest.ini"
GOOD = {"name": "facts", "title": "Facts", "outcome": "passed", "began": 0.0, "seconds": 2.0, "numbers": {}}
GOOD |= {"claims": [["name", "H200 | H200"]], "problems": []}
STEPS = """
import sys
def test_good(visit, notes): notes.expect(True, "one", "GPU-a1b2c3d4-0000-1111-2222-333344445555")
def test_wrong(visit, notes): notes.expect(False, "two", "not shown")
def test_silent(visit, notes): pass
def test_raises(visit, notes): raise KeyError("three")
def test_hangs(visit, notes):
    done = visit.run([sys.executable, "-c", "import time; time.sleep(60)"], 0.2)
    notes.expect(done.ok, "it ends", done.why())
def test_crashes(visit, notes):
    notes.problems.append(visit.child("plain", "faulthandler", "x", seconds=20)[1])
def test_peers(visit, notes): visit.installed("stack")
"""


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [("passed passed", 0), ("passed skipped", 3), ("passed", 3), ("", 3), ("skipped failed", 1)],
)
def test_a_skipped_step_is_not_passed_nor_is_a_visit_cut_off(outcomes: str, code: int) -> None:
    steps = zip(("facts", "taken_back"), outcomes.split(), strict=False)
    assert exit_code_of({"name": name, "outcome": outcome} for name, outcome in steps) == code


def test_records_and_pages_say_the_same() -> None:
    assert not any(json.loads(path.read_text("utf-8"))["rehearsal"] for path in RECORDS)
    for page, text in (("README.md", "Not run on a GPU"), ("docs/verified.md", "has been run on a GPU yet")):
        assert (text in (ROOT / page).read_text("utf-8")) == (not RECORDS), page


def test_every_test_for_a_gpu_is_a_part() -> None:
    room = ROOT / "tests"
    paths = [path for path in room.rglob("test_*.py") if path.parent.name != "gpu_check"]
    marked = {str(path.relative_to(room)) for path in paths if "pytest.mark.gpu" in path.read_text("utf-8")}
    assert marked <= {*OTHERS, "kernels/test_waits_on_gpu.py", "kernels/test_rasterizer_golden.py"}


def test_steps_end_as_they_do(tmp_path: Path) -> None:
    """In a pytest of their own, where a GPU is pretended; nothing comes from GPU_SOURCES."""
    (tmp_path / "test_visit.py").write_text(STEPS)
    pretended = "needs.machine = lambda: ({'gpu': 'a card'}, '')"
    text = f"from gpu_check.conftest import *\nfrom gpu_check import needs\n{pretended}"
    (tmp_path / "conftest.py").write_text(text)
    argv = f"{PYTEST} {tmp_path} --confcutdir {tmp_path} --out {tmp_path}/out --budget 60 -m".split()
    variables = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([*argv, ""], env=variables, capture_output=True, text=True, check=False)
    seen = json.loads((tmp_path / "out" / "record.json").read_text())
    endings = {step["name"]: (step["outcome"], "; ".join(step["problems"])) for step in seen["steps"]}
    assert endings.pop("good") == ("passed", "") == endings.pop("taken_back"), done.stdout
    assert endings["wrong"] == ("failed", "two: not shown")
    assert endings["silent"] == ("failed", "it ended and showed nothing")
    assert {name: said[0] for name, said in endings.items() if said[0] != "failed"} == {"peers": "skipped"}
    left = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert left.keys() == {"record.json", "table.md", "output.txt"} and "sha256:" in left["record.json"]
    assert not any("a1b2c3d4" in text for text in left.values())
    assert done.returncode == seen["exit_code"] == 1


def test_what_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of GLM the headers, of a source no history; the command is short, and too much is refused by name."""
    gone = {"gsplat/.git/x", "gsplat/glm/doc/big"}
    kept = {
        "gsplat/setup.py",
        "gsplat/glm/glm/glm.hpp",
        "fused_ssim-1-cp312.whl",
        "needs/fastjsonschema-1-py3.whl",
    }
    for name in gone | kept:
        (tmp_path / "given" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "given" / name).write_text(name)
    (tmp_path / "given" / "needs" / "fastjsonschema-1-py3.whl").rename(
        tmp_path / "given" / "fastjsonschema-1-py3.whl"
    )
    (tmp_path / "courtyard.ply").touch()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.setattr(travel, "ROOT", tmp_path)
    (tmp_path / ".gitignore").write_text("*\n")
    command = travel.pack(tmp_path / "given", tmp_path / "given", tmp_path, "abc")
    travelled = tmp_path / "gpu-check" / "travel"
    found = {str(path.relative_to(travelled)) for path in travelled.rglob("*") if path.is_file()}
    assert found == kept | {"commit", "courtyard.ply"}
    assert re.match(r"python3 -m pip install .*tests/gpu_check", command) and len(command) < 2000
    monkeypatch.setattr(travel, "MOST", 10)
    with pytest.raises(ValueError, match=r"setup\.py"):
        travel.pack(tmp_path / "given", None, tmp_path, "abc")


def test_what_came_back_becomes_a_record(tmp_path: Path) -> None:
    seen: dict[str, Any] = {"kind": KIND, "rehearsal": False, "steps": [GOOD]}
    seen["date"] = "2026-11-27T03:51:07+00:00"
    seen["machine"] = {"gpu": "NVIDIA H200"}
    (tmp_path / "record.json").write_text(json.dumps(seen))
    np.savez(tmp_path / "arrays.npz", **{"golden/opaque/color": np.ones(3)})
    path = travel.back(tmp_path, tmp_path)
    assert path.name == "gpu_check_h200_202611270351.json" and json.loads(path.read_text("utf-8")) == seen
    assert "| passed, 2 s | name: H200 \\| H200 |" in table({**seen, "seconds": 3.0, "exit_code": 0})
    assert list(np.load(tmp_path / "rasterizer_cuda.npz")) == ["opaque/color"]
    (tmp_path / "record.json").write_text(json.dumps({**seen, "rehearsal": True}))
    with pytest.raises(ValueError, match="rehearsal"):
        travel.back(tmp_path, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(standins.missing()), reason=standins.missing())
def test_the_visit_is_rehearsed(tmp_path: Path) -> None:
    done = subprocess.run(f"{PYTEST} {ROOT}/tests/gpu_check --rehearse --out {tmp_path}".split(), check=False)
    seen = json.loads((tmp_path / "record.json").read_text("utf-8"))
    assert {step["name"]: step["problems"] for step in seen["steps"] if step["outcome"] != "rehearsed"} == {}
    assert done.returncode == 0 and len(seen["steps"]) == 23
