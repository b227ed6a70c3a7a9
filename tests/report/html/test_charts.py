"""Curves: what is left of many iterations, round ticks, and what a screen reader says."""

from pathlib import Path

import pytest

from smoke_trainer.record import TrainingRecord
from splatfix.report.html.charts import chart, nice_ticks
from splatfix.report.html.metrics import Line, Values, read_metrics, reduced
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
    assert "by iteration. loss: 0.5 at iteration 1, 0.25 at 3" in drawn and "opacity reset: 2" in drawn
    assert drawn.count('class="line s0"') == 2  # a gap is no line


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
    rows, unread = read_metrics(path)
    assert [(row.iteration, row.loss, row.opacity_reset) for row in rows] == [
        (1, 0.5, True),
        (2, None, False),
    ]
    assert unread == "metrics.jsonl: 4 of 6 lines cannot be read"


def test_gpu_memory_has_its_own_limit() -> None:
    known = {"loss": 0.5, "psnr": 20.0, "gaussians": 5.0}
    rows = [
        Line(1, **known, vram_allocated_gb=10.0, vram_reserved_gb=11.0),
        Line(2, **known, vram_allocated_gb=12.0, vram_reserved_gb=14.0),
    ]
    result = {"machine": {"gpu_memory": 16 << 30}, "memory": {"limit": 64 << 30}}
    memory = next(item for item in charts(rows, record_of(result)) if "<b>GPU memory</b>" in item)
    assert "Peak 14 of 16 GiB, 87.5%. Above 97% of it" in memory and "allocated on the GPU" in memory
    assert any("How much memory there is, is not known." in item for item in charts(rows, TrainingRecord()))
