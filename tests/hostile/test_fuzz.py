"""Ten seconds of coverage-guided fuzzing for each reader; what breaks one is kept in build/fuzz, and named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Survived
from tests.hostile.fuzz import GUIDED, TARGETS, blindly
from tests.hostile.targets import READERS


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_breaks_a_reader(target: str, survived: Survived) -> None:
    argv = [sys.executable, "-m", "tests.hostile.fuzz", target, "--seconds", "10"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    runs = re.search(r"executed_units: (\d+)", done.stderr)
    assert runs and int(runs.group(1)) > 50, done.stderr[-4000:]
    survived(f"{'guided' if GUIDED else 'blind'} fuzzing of {target}", int(runs.group(1)))


def test_every_reader_has_seeds() -> None:
    assert tuple(READERS) == TARGETS and all(seeds() for _, seeds in READERS.values())


def test_what_breaks_a_reader_is_kept(tmp_path: Path) -> None:
    def read(data: bytes) -> None:
        if data != b"seed":
            raise ZeroDivisionError

    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds" / "one").write_bytes(b"seed")
    with pytest.raises(ZeroDivisionError):
        blindly(read, tmp_path / "seeds", tmp_path, seconds=5)
    (kept,) = tmp_path.glob("crash-*")
    assert kept.read_bytes() != b"seed"
