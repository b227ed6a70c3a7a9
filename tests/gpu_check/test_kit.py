"""The kit without a GPU: pages say what the records do, every test for a GPU is a part, and all of it is rehearsed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import standins

from .test_visit_rest import OTHERS
from .visit import ROOT

RECORDS = sorted((ROOT / "tests" / "records").glob("gpu_check_*.json"))
PYTEST = f"{sys.executable} -m pytest -c {ROOT}/tests/gpu_check/pytest.ini"


def test_records_and_pages_say_the_same() -> None:
    assert not any(json.loads(path.read_text("utf-8"))["rehearsal"] for path in RECORDS)
    for page, text in (("README.md", "Not run on a GPU"), ("docs/verified.md", "has been run on a GPU yet")):
        assert (text in (ROOT / page).read_text("utf-8")) == (not RECORDS), page


def test_every_test_for_a_gpu_is_a_part() -> None:
    room = ROOT / "tests"
    paths = [path for path in room.rglob("test_*.py") if path.parent.name != "gpu_check"]
    marked = {str(path.relative_to(room)) for path in paths if "pytest.mark.gpu" in path.read_text("utf-8")}
    assert marked <= {*OTHERS, "kernels/test_waits_on_gpu.py", "kernels/test_rasterizer_golden.py"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(standins.missing()), reason=standins.missing())
def test_the_visit_is_rehearsed(tmp_path: Path) -> None:
    done = subprocess.run(f"{PYTEST} {ROOT}/tests/gpu_check --rehearse --out {tmp_path}".split(), check=False)
    seen = json.loads((tmp_path / "record.json").read_text("utf-8"))
    assert {step["name"]: step["problems"] for step in seen["steps"] if step["outcome"] != "rehearsed"} == {}
    assert done.returncode == 0 and len(seen["steps"]) == 23
