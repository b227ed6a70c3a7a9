"""How even iterations are, and what other programs took meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from smoke_trainer import timing
from smoke_trainer.timing import OtherPrograms, steadiness


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what other programs take")
def test_another_program_is_seen_and_this_one_is_not() -> None:
    others = OtherPrograms()
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
    others.sample(10)
    before = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    others.sample(20)
    (_, clock, alone), (_, beside, busy) = others.samples
    assert busy >= 0.4 and beside <= time.perf_counter() - before + 0.1
    assert alone <= clock * (os.cpu_count() or 1) - 0.4  # its own half second is left out


def test_where_the_system_does_not_tell_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_busy_seconds", lambda: None)
    others = OtherPrograms()
    others.sample(40)
    assert steadiness([1.0] * 40, 0, 10, others).others is None


def test_load_at_the_end_is_not_hidden_by_an_idle_start() -> None:
    """The second half of what follows the last densification is judged by its own load."""
    others = OtherPrograms()
    others.samples = [(10, 1.0, 9.0), (80, 97.0, -0.5), (90, 1.0, 0.0), (100, 1.0, 1.0)]
    even = steadiness([1.0] * 90 + [1.9] * 10, 80, 10, others)
    assert even.others == 1.0 and even.drift == pytest.approx(1.9)
    assert others.cores(10) == pytest.approx(0.5 / 99)
    assert steadiness([1.0] * 40, 0, 10).others is None
