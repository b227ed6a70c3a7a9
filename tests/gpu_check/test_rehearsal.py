"""Every step of the plan on the CPU with stand-ins, as ``make gpu-check-rehearse`` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from splatfix.core.files import read_json
from tests import standins

from .record import Outcome, read_record
from .steps import STEPS


@pytest.mark.slow
@pytest.mark.skipif(bool(standins.missing()), reason=standins.missing())
def test_every_step_is_rehearsed(tmp_path: Path) -> None:
    argv = [sys.executable, str(Path(__file__).parent), "--rehearse", "--out", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    record = read_record(read_json(tmp_path / "record.json", "the record"))
    ended = {step.name: (step.outcome.value, step.problems) for step in record.steps}
    assert list(ended) == [step.name for step in STEPS]
    assert {name: end for name, end in ended.items() if end[0] != "rehearsed"} == {}
    assert (done.returncode, record.exit_code, record.rehearsal) == (0, 0, True)
    assert done.stdout.startswith("REHEARSAL") and "| passed |" not in done.stdout
    assert (tmp_path / "rasterizer_cuda.npz").is_file() and (tmp_path / "table.md").is_file()
    assert Outcome.PASSED not in {step.outcome for step in record.steps}
