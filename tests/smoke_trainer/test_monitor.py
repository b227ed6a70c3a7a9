"""What a run leaves in metrics.jsonl and TensorBoard, and what its progress line says."""

import json
import math
import sys
import types

import pytest
import torch

from smoke_trainer import progress
from smoke_trainer.densify import DensifyEvent
from smoke_trainer.metrics import Loss
from smoke_trainer.monitor import Monitor
from smoke_trainer.progress import State, show_progress, words
from smoke_trainer.train import train


class Board:
    """Stands in for torch's SummaryWriter, which needs the package tensorboard."""

    scalars: dict[str, list[tuple[float, int]]]

    def __init__(self, folder: str) -> None:
        Board.scalars = {}

    def add_scalar(self, name: str, value: float, step: int) -> None:
        assert math.isfinite(value)
        Board.scalars.setdefault(name, []).append((value, step))

    def close(self) -> None:
        pass


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> type[Board]:
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Board  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    return Board


def test_tensorboard_gets_the_series_of_the_file(short_run, board):
    config = short_run(10, tensorboard=True)
    assert train(config).status == "ok"
    rows = [json.loads(line) for line in (config.out / "metrics.jsonl").read_text().splitlines()]
    assert board.scalars["train/loss"] == [(row["loss"], row["iteration"]) for row in rows]
    assert board.scalars["train/psnr"] == [(row["psnr"], row["iteration"]) for row in rows]
    series = {"ms/forward", "ms/backward", "ms/optimizer", "ms/data", "gradients/xyz", "train/gaussians"}
    assert series <= set(board.scalars)


def test_tensorboard_without_threads_is_refused_before_training(short_run, board, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(board, "__init__", refuse)
    result = train(short_run(2, tensorboard=True))
    assert result.status == "wrong-usage" and "new thread" in result.error.message


def test_tensorboard_gets_cuda_memory_under_its_names(tmp_path, board):
    monitor = Monitor(tmp_path, torch.device("cpu"), tensorboard=True)
    memory = {"vram_allocated_gb": 1.5, "vram_reserved_gb": 2.0}
    monitor.memory.sample = lambda iteration, explained: memory  # type: ignore[method-assign]
    monitor.start()
    one = torch.tensor(0.5)
    monitor.record(
        1, Loss(one, one, one, torch.tensor(0.01)), {"xyz": torch.tensor(math.inf)}, 7, DensifyEvent()
    )
    monitor.flush()
    monitor.close()
    for name, value in memory.items():
        assert board.scalars[f"train/{name}"] == [(value, 1)]
    assert board.scalars["train/psnr"] == [(pytest.approx(20.0), 1)]
    assert "gradients/xyz" not in board.scalars  # no number: left out, not written as one
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["gradients"] == {"xyz": None}
    assert monitor.latest["vram_allocated_gb"] == 1.5


def test_evaluate_every_reports_heldout_psnr(short_run):
    states: list[State] = []
    report = train(short_run(15, evaluate_every=5), states.append).record
    on_the_way = {state["iteration"]: state["heldout_psnr"] for state in states if "heldout_psnr" in state}
    assert set(on_the_way) == {5, 10, 15}
    assert on_the_way[10] > report.initial_heldout.psnr
    assert on_the_way[10] != on_the_way[15] == report.heldout.psnr, "the last line has the result's"
    states.clear()
    train(short_run(3, out="without"), states.append)
    assert [state["iteration"] for state in states if "heldout_psnr" in state] == [3]
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
        news = {"heldout_psnr": 20.0} if iteration == 4 else {}
        show({**STATE, "iteration": iteration, **news})
    shown = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in shown] == ["1", "4", "9"]
    assert "held-out" not in shown[0] and "held-out 20.00 dB" in shown[2]


def test_progress_on_a_terminal_is_one_live_line(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    show = show_progress(as_json=False)
    show(STATE)
    show({**STATE, "iteration": 9})
    live, last = capsys.readouterr().err.split("\033[K\r")
    assert live == PLAIN and last.startswith("iteration 9 of 9") and last.endswith("\n")
