"""Ten seconds of coverage-guided fuzzing for each reader; what breaks one is kept in build/fuzz, and named."""

import importlib.util
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT, Survived
from tests.hostile.fuzz import TARGETS


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("atheris"), reason="Atheris is not made for this machine")
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_breaks_a_reader(target: str, survived: Survived) -> None:
    argv = [sys.executable, "-m", "tests.hostile.fuzz", target, "--seconds", "10"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    runs = re.search(r"executed_units: (\d+)", done.stderr)
    assert runs and int(runs.group(1)) > 50, done.stderr[-4000:]
    survived(f"guided fuzzing of {target}", int(runs.group(1)))
