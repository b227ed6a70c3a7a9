"""A listing whose reader has seen enough ends without a word."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from smoke_trainer.data.load import SAMPLES
from smoke_trainer.process import BROKEN_PIPE


@pytest.mark.parametrize(
    "words",
    [
        ["smoke_trainer.data", str(SAMPLES)],
        ["smoke_trainer.data", str(SAMPLES), "--json"],
    ],
)
def test_a_reader_that_is_gone_is_no_error(words):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", *words], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, "")


def test_a_reader_that_stays_gets_everything_and_the_exit_code():
    done = subprocess.run(
        [sys.executable, "-m", "smoke_trainer.data", str(SAMPLES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 6)
    done = subprocess.run(
        [sys.executable, "-m", "smoke_trainer.data", "no/such"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "folder not found" in done.stderr
