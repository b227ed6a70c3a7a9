"""Ctrl-C in a certification: one line that nothing was shown, and where the part that had run lies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from splatfix.app.certify import run_and_report
from splatfix.certify import Interrupted, Request
from splatfix.certify.suites import Suite

pytest.importorskip("torch")


def test_a_stop_before_any_scene_points_nowhere(tmp_path: Path) -> None:
    (tmp_path / "figurine").mkdir()  # of another day

    def stop(where: str, state: Mapping[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        run_and_report(Request(sys.executable, Suite("quick", "", ("figurine",), 60.0), tmp_path), stop)
    assert str(caught.value) == "Interrupted: nothing was certified or refused."


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_says_so_and_leaves_no_certificate(number: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "report"
    words = ["certify", "--suite", "quick", "--iterations", "5000", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "splatfix", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        waiting_until = time.monotonic() + 120
        while not (out / "courtyard" / "trainer.log").is_file():
            assert process.poll() is None and time.monotonic() < waiting_until
            time.sleep(0.1)
        process.send_signal(number)
        told = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    last = told[1].strip().splitlines()[-1]
    assert last == (
        "Interrupted: nothing was certified or refused. There is no certificate; what courtyard left so far "
        f"lies in {out}."
    )
    assert told[0] == "" and not (out / "certificate.json").exists()
