"""Curves: what is left of many iterations, round ticks, and what a screen reader says."""

from pathlib import Path

import pytest

from smoke_trainer.record import TrainingRecord
from splatfix.report.html.charts import chart, nice_ticks
from splatfix.report.html.metrics import Metrics, Values, read_metrics, reduced
from splatfix.report.html.scenes import charts
from tests.certify.conftest import record_of
from tests.tables import data


def test_a_peak_of_one_iteration_survives_reduction() -> None:
    values: Values = [1.0] * 30_000
    values[12_345] = 50.0
    points = reduced(range(1, 30_001), values, most=240)
    assert len(points) <= 240
    assert max(point.high for point in points if point) == 50.0
    assert min(point.low for point in points if point) == 1.0


@pytest.mark.parametrize(("low", "high", "expected"), data(__file__)["ticks_hold_what_is_shown"])
def test_ticks_hold_what_is_shown(low: float, high: float, expected: list[float] | None) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low and ticks[-1] >= high and len(ticks) >= 2
    assert expected is None or ticks == pytest.approx(expected)


def test_chart_says_what_it_shows() -> None:
    drawn = chart("Loss", "", (1, 2, 3), {"loss": [0.5, None, 0.25]}, resets=(2,))
    assert "by iteration. loss: 0.5 at iteration 1, 0.25 at 3" in drawn.description
    assert "without a finite value: 1;" in drawn.description and "opacity reset: 2" in drawn.description
    assert [kind for kind, _ in drawn.paths].count("line s0") == 2  # a gap is no line
    parts = {"forward": [1.0, 3.0], "backward": [2.0, None]}
    stacked = chart("Time", "ms", (1, 2), parts, stacked=True)
    assert [kind for kind, _ in stacked.paths] == ["area s0", "area s1"]
    assert [label for _, label in stacked.values] == ["0", "1", "2", "3"], "to the highest sum"


DAMAGED = """\
{"iteration": 1, "loss": 0.5, "gaussians": 10, "ms": {"forward": 2.0}, "rss_gb": 0.3, "opacity_reset": true}
{"iteration": 2, "loss": null}
{"iteration": tru
[1]
{"loss": 1}
{"iteration": 1e999}
"""


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(DAMAGED)
    metrics = read_metrics(path)
    assert metrics.iterations == (1, 2)
    assert metrics.columns["loss"] == [0.5, None]
    assert metrics.phases == {"forward": [2.0, None]}
    assert metrics.resets == (1,)
    assert metrics.unread == "metrics.jsonl: 4 of 6 lines cannot be read"


def test_gpu_memory_has_its_own_limit() -> None:
    known: dict[str, Values] = {
        "loss": [0.5, 0.4],
        "psnr": [20.0, 21.0],
        "gaussians": [5.0, 6.0],
        "rss_gb": [None, None],
    }
    known |= {"vram_allocated_gb": [10.0, 12.0], "vram_reserved_gb": [11.0, 14.0]}
    result = {"machine": {"gpu_memory": 16 << 30}, "memory": {"limit": 64 << 30}}
    drawn = charts(Metrics((1, 2), known), record_of(result))
    (memory,) = (item for item in drawn if "mem" in item.title)
    assert memory.title == "GPU memory" and memory.limit is not None and memory.limit[1] == "97% of 16 GiB"
    assert "Peak 14 of 16 GiB, 87.5%." in memory.note and "allocated on the GPU" in memory.description
    notes = [item.note for item in charts(Metrics((1, 2), known), TrainingRecord())]
    assert "How much memory there is, is not known." in notes
