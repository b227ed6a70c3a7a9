"""How far a stack's trainer is, by its observer's lines; and how many threads it gets."""

import json
import threading
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.certify.progress import words
from splatfix.certify.stacks.progress import Lines, following
from splatfix.certify.stacks.threads import threads_for
from splatfix.model import Facts, Resources


def line(iteration: int, milliseconds: float = 250.0, loss: float | None = 0.1) -> str:
    row = {
        "iteration": iteration,
        "loss": loss,
        "gaussians": 300,
        "rss_gb": 0.5,
        "ms": {"iteration": milliseconds},
    }
    return json.dumps(row) + "\n"


def test_a_growing_file_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = Lines(path, 100)
    assert lines.latest() == {}
    path.write_text(line(1, 9000.0) + line(2) + line(3)[:20])
    state = lines.latest()
    assert state["iteration"] == 2 and state["iterations_per_second"] == pytest.approx(4.0)
    assert lines.latest() == {}, "half a line is none"
    path.write_text(line(1, 9000.0) + line(2) + line(3, loss=None) + "[1]\n")
    state = lines.latest()
    assert words(state) == "iteration 3 of 100, 4.0 it/s, 300 Gaussians, host memory 0.50 GiB, 0:24 left"


def test_a_line_without_an_end_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("x" * (40 << 20))
    lines = Lines(path, 100)
    tracemalloc.start()
    for _ in range(4):
        assert lines.latest() == {}
    assert tracemalloc.get_traced_memory()[0] < 1 << 20
    tracemalloc.stop()
    with path.open("a") as file:
        file.write(f"\n{line(3)}")
    assert lines.latest()["iteration"] == 3


def test_who_fails_to_listen_stops_nothing(tmp_path: Path) -> None:
    path, told = tmp_path / "metrics.jsonl", threading.Event()
    path.write_text(line(1))

    def tell(state: Mapping[str, Any]) -> None:
        told.set()
        raise OSError(28, "No space left on device")

    with following(path, 100, tell, every=0.01):
        assert told.wait(5)


@pytest.mark.parametrize(
    ("variables", "cores", "load", "count", "why"),
    [
        ({"OMP_NUM_THREADS": "6"}, 2, 9.0, 6, "OMP_NUM_THREADS"),
        ({"OMP_NUM_THREADS": "4,2"}, 2, 9.0, 4, "OMP_NUM_THREADS"),
        ({"OMP_NUM_THREADS": "many"}, 2, 0.1, 1, "2 cores, 1.9 of them idle at the start"),
        ({}, 2, 3.2, 1, "2 cores, 0.0 of them idle at the start"),
        ({}, 8, 1.5, 3, "8 cores, 6.5 of them idle at the start"),
        ({}, 64, 0.0, 8, "64 cores, 64.0 of them idle at the start"),
    ],
)
def test_threads(
    known: Facts, variables: dict[str, str], cores: int, load: float, count: int, why: str
) -> None:
    machine = replace(known.machine, resources=Resources(cores=cores))
    found = threads_for(replace(known, machine=machine), variables, load)
    assert (found.count, found.reason) == (count, why)
