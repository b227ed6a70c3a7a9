"""The kit without a GPU: pages say what the records do, and all of it is rehearsed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import standins

from .visit import ROOT

RECORDS = sorted((ROOT / "tests" / "records").glob("gpu_check_*.json"))
PYTEST = f"{sys.executable} -m pytest -c {ROOT}/tests/gpu_check/pytest.ini"


def test_records_and_pages_say_the_same() -> None:
    for text in [path.read_text("utf-8") for path in RECORDS]:
        assert not json.loads(text)["rehearsal"] and not re.search(r'[" ]/\w+/', text), "it is public"
    for page, text in (("README.md", "Not run on a GPU"), ("docs/verified.md", "has been run on a GPU yet")):
        assert (text in (ROOT / page).read_text("utf-8")) == (not RECORDS), page


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(standins.missing()), reason=standins.missing())
def test_the_visit_is_rehearsed(tmp_path: Path) -> None:
    done = subprocess.run(f"{PYTEST} {ROOT}/tests/gpu_check --rehearse --out {tmp_path}".split(), check=False)
    seen = json.loads((tmp_path / "record.json").read_text("utf-8"))
    assert {step["name"]: step["problems"] for step in seen["steps"] if step["outcome"] != "rehearsed"} == {}
    assert done.returncode == 0 and len(seen["steps"]) == 23
