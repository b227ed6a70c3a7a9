"""What a run leaves in metrics.jsonl, and what its progress line says."""

import json
import math
import sys

import pytest
import torch

from smoke_trainer import progress
from smoke_trainer.densify import DensifyEvent
from smoke_trainer.metrics import Loss
from smoke_trainer.monitor import Monitor
from smoke_trainer.progress import State, show_progress, words
from smoke_trainer.train import train


def test_a_line_of_metrics_is_json_and_progress_has_its_memory(tmp_path, monkeypatch):
    monitor = Monitor(tmp_path, torch.device("cpu"))
    memory = {"vram_allocated_gb": 1.5, "vram_reserved_gb": 2.0}
    monkeypatch.setattr(monitor.memory, "sample", lambda iteration, explained: memory)
    monitor.start()
    one = torch.tensor(0.5)
    loss = Loss(one, one, one, torch.tensor(0.01))
    monitor.record(1, loss, {"xyz": torch.tensor(math.inf)}, 7, DensifyEvent())
    monitor.flush()
    monitor.close()
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert memory.items() <= line.items() and line["psnr"] == pytest.approx(20.0)
    assert line["gradients"] == {"xyz": None}  # no number: not written as one
    assert monitor.latest["vram_allocated_gb"] == 1.5


def test_the_last_line_has_the_result_s_heldout_psnr(short_run):
    states: list[State] = []
    report = train(short_run(3), states.append)
    told = [(state["iteration"], state["heldout_psnr"]) for state in states if "heldout_psnr" in state]
    assert told == [(3, report.heldout.psnr)]
    assert ["run" in state for state in states] == [True, False, False]
    states.clear()
    train(short_run(1, out="one"), states.append)
    assert [("run" in state, "heldout_psnr" in state) for state in states] == [(True, True)]


STATE = {
    "iteration": 5,
    "iterations": 9,
    "loss": 0.25,
    "gaussians": 77,
    "iterations_per_second": 2.5,
    "psnr": 21.5,
}
PLAIN = "iteration 5 of 9, 2.5 it/s, loss 0.2500, PSNR 21.50 dB, 77 Gaussians, 0:02 left"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, PLAIN),
        ({"iterations": 5, "psnr": None, "loss": None}, "iteration 5 of 5, 2.5 it/s, 77 Gaussians"),
        (
            {"iterations": 36005, "heldout_psnr": 20.25, "vram_allocated_gb": 1.234, "rss_gb": 2.0},
            "iteration 5 of 36005, 2.5 it/s, loss 0.2500, PSNR 21.50 dB, held-out 20.25 dB, 77 Gaussians, VRAM 1.23 GiB, "
            "host memory 2.00 GiB, 4:00:00 left",
        ),
    ],
)
def test_progress_in_words(changes, text):
    assert words({**STATE, **changes}) == text


def test_progress_off_a_terminal_is_a_plain_line_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 3600.0)  # a machine may stand still for a second
    show = show_progress(as_json=False)
    for iteration in range(1, 10):
        show({**STATE, "iteration": iteration})
    shown = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in shown] == ["1", "9"]


def test_progress_on_a_terminal_is_one_live_line(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    show = show_progress(as_json=False)
    show(STATE)
    show({**STATE, "iteration": 9})
    live, last = capsys.readouterr().err.split("\033[K\r")
    assert live == PLAIN and last.startswith("iteration 9 of 9") and last.endswith("\n")
