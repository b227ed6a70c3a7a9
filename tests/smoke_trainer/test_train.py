"""Whole runs on a tiny scene: what they leave, that they repeat, resume, fail and stop as they should."""

import json
import signal
import weakref
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from smoke_trainer import ply, report
from smoke_trainer import train as training
from smoke_trainer.__main__ import main
from smoke_trainer.checkpoint import read_checkpoint
from smoke_trainer.config import TrainConfig
from smoke_trainer.model import GROUPS
from smoke_trainer.record import SCHEMA_VERSION
from smoke_trainer.renderers import TorchRenderer
from smoke_trainer.train import train
from splatfix.explain import cause_of
from tests.smoke_trainer.conftest import ShortRun


def lines(config: TrainConfig) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (config.out / "metrics.jsonl").read_text().splitlines()]


def cloud(config: TrainConfig, iteration: int) -> Any:
    return ply.read_gaussians(config.out / "point_cloud" / f"iteration_{iteration}" / "point_cloud.ply")


@pytest.fixture(scope="module")
def finished(
    short_run_in: Callable[[Path], ShortRun], tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainConfig, Any]:
    config = short_run_in(tmp_path_factory.mktemp("finished"))(40)
    return config, train(config)


@pytest.fixture
def render_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Let the renderer be `change(honest, splats)`, `honest` being ours for this camera and background."""
    ours = TorchRenderer.render

    def use(change: Callable[..., Any]) -> None:
        def render(self: Any, camera: Any, splats: Any, background: Any) -> Any:
            return change(lambda splats: ours(self, camera, splats, background), splats)

        monkeypatch.setattr(TorchRenderer, "render", render)

    return use


def test_result_json_is_complete(finished):
    config, record = finished
    assert json.loads((config.out / "result.json").read_text()) == json.loads(json.dumps(asdict(record)))
    assert (record.status, record.schema_version) == ("ok", SCHEMA_VERSION)
    assert record.iterations == 40 and record.iterations_per_second > 0
    assert record.heldout.psnr > record.initial_heldout.psnr + 1.0
    assert record.heldout.views == 2
    assert record.train_loss.last < record.train_loss.first
    assert record.split.test == ["view_000.png", "view_008.png"]
    assert not set(record.split.test) & set(record.split.train)
    counts = record.gaussians
    assert counts.cloned + counts.split > 0 and record.opacity_resets == 0
    assert counts.final == counts.initial + counts.cloned + counts.split - counts.pruned
    assert counts.peak >= counts.final
    for name in GROUPS:
        health = record.gradients[name]
        assert health.steps > 0 and health.zero_steps == 0 and health.non_finite_steps == 0
        assert 0 < health.min <= health.median <= health.max
    assert record.gradients["xyz"].steps == 40 > record.gradients["f_rest"].steps
    assert record.updates.keys() == set(GROUPS)
    assert all(row.steps == row.moved > 0 for row in record.updates.values())
    assert record.memory.rss > 50e6 and record.memory.cuda is None
    renderer = record.implementations["renderer"]
    assert (renderer.kind, renderer.engine) == (record.config.renderer, "torch-cpu")
    assert record.config.iterations == 40
    assert record.ply.round_trip_difference <= 1e-6


def test_metrics_have_one_line_per_iteration(finished):
    config, _ = finished
    rows = lines(config)
    assert [row["iteration"] for row in rows] == list(range(1, 41))
    for row in rows:
        assert {"data", "forward", "backward", "optimizer", "densify", "record"} == set(row["ms"])
        assert row["loss"] == pytest.approx(0.8 * row["l1"] + 0.2 * (1 - row["ssim"]), abs=1e-5)
    assert rows[-1]["gaussians"] == len(cloud(config, 40)["xyz"])


def test_previews_show_rendering_and_photo_side_by_side(finished):
    config, _ = finished
    files = sorted((config.out / "renders").glob("*.png"))
    assert len(files) == 2
    pixels = np.asarray(Image.open(files[0])).astype(float)
    assert pixels.shape == (36, 96, 3)
    assert 0 < np.abs(pixels[:, :48] - pixels[:, 48:]).mean() < 60


@pytest.mark.parametrize("strategy", ["default", "mcmc", "budget"])
def test_a_resumed_run_is_bit_identical(strategy, short_run):
    uninterrupted = short_run(12, out="whole", strategy=strategy, background="random")
    first = short_run(12, out="first", strategy=strategy, background="random", checkpoint_every=5)
    uninterrupted_result = train(uninterrupted)
    assert uninterrupted_result.status == "ok"
    checkpoint, kept = first.out / "checkpoint.pt", first.out / "kept.pt"

    def keep_that_of_5_and_stop(state):
        if state["iteration"] == 6:
            kept.write_bytes(checkpoint.read_bytes())
        if state["iteration"] == 7:
            signal.raise_signal(signal.SIGINT)

    stopped = train(first, keep_that_of_5_and_stop)
    assert stopped.status == "interrupted"
    assert read_checkpoint(checkpoint, torch.device("cpu"))["rest"]["iteration"] == 7 == len(lines(first))
    assert read_checkpoint(kept, torch.device("cpu"))["rest"]["iteration"] == 5
    again = short_run(12, out="again", strategy=strategy, background="random", resume=kept)
    result = train(again)
    assert result.status == "ok"
    one, two = cloud(uninterrupted, 12), cloud(again, 12)
    for name in GROUPS:
        assert np.array_equal(one[name], two[name]), name
    assert result.gaussians == uninterrupted_result.gaussians
    assert [row["loss"] for row in lines(again)] == [row["loss"] for row in lines(uninterrupted)]


def test_a_second_ctrl_c_stops_at_once(short_run):
    def interrupt(state):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(short_run(12), interrupt)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_in_the_last_evaluation_writes_a_checkpoint(short_run, monkeypatch, capsys):
    config = short_run(9)
    honest = training.evaluate

    def interrupted(run, previews=None):
        if previews is not None:
            raise KeyboardInterrupt
        return honest(run)

    monkeypatch.setattr(training, "evaluate", interrupted)
    options = ["--iterations", "9", "--out", str(config.out)]
    assert main([config.scene, *options]) == 3
    checkpoint = config.out / "checkpoint.pt"
    assert f"--resume {checkpoint}" in capsys.readouterr().err
    assert read_checkpoint(checkpoint, torch.device("cpu"))["rest"]["iteration"] == 9
    monkeypatch.undo()
    record = train(short_run(9, out="again", resume=checkpoint))
    assert (record.status, record.iterations) == ("ok", 9)
    assert record.iterations_per_second is None  # nothing was left to train


@pytest.mark.parametrize(
    ("only_evaluation", "message"),
    [(True, "is not a number after iteration 6"), (False, "not a number")],
)
def test_nan_from_the_renderer_is_a_failure(short_run, render_by, only_evaluation, message):
    def broken(honest, splats):
        output = honest(splats)
        bad = not only_evaluation or (not torch.is_grad_enabled() and splats.sh_degree > 0)
        return type(output)(output.color * float("nan"), output.radii, output.means2d) if bad else output

    render_by(broken)
    config = short_run(6)
    result = train(config)
    assert result.status == "failed"
    assert message in result.error.message
    assert "NaN" not in (config.out / "result.json").read_text()


def test_a_kernel_that_raises_is_a_failure_with_traceback(short_run, render_by):
    def breaks_later(honest, splats):
        if splats.sh_degree > 0:
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore")
        return honest(splats)

    render_by(breaks_later)
    result = train(short_run(30))
    error = result.error
    assert result.status == "failed"
    assert "RuntimeError after iteration 15: CUDA error: no kernel image" in error.message
    assert "breaks_later" in error.traceback


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("only the cameras of even numbers", None),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", "cuda-oom-runtime"),
    ],
)
def test_the_cause_is_in_what_was_raised_and_not_in_our_own_words(said, cause, short_run, render_by):
    def raises(honest, splats):
        raise ValueError(said)

    render_by(raises)
    error = train(short_run(3)).error
    named = cause_of("\n".join(map(str, asdict(error).values())))
    assert (named and named.name) == cause


def test_a_renderer_without_gradients_is_seen_in_the_gradients(short_run, render_by):
    def detached(honest, splats):
        output = honest(splats._replace(means=splats.means.detach()))
        return type(output)(output.color, output.radii, torch.zeros_like(splats.means))

    render_by(detached)
    record = train(short_run(10))
    assert record.gradients["xyz"].zero_steps == 10
    assert record.gradients["f_dc"].zero_steps == 0
    assert record.gaussians.cloned == record.gaussians.split == 0


def test_a_ply_that_renders_differently_is_a_failure(short_run, monkeypatch):
    honest = ply.write_gaussians

    def wrong(path, groups):
        honest(path, dict(groups, scaling=groups["scaling"] + 0.1))

    monkeypatch.setattr(report.ply, "write_gaussians", wrong)
    result = train(short_run(5))
    assert result.status == "failed"
    assert result.ply.round_trip_difference > 1e-3


@pytest.mark.parametrize("layout", ["colmap-text", "blender", "nerfstudio"])
def test_every_layout_trains(layout, short_run):
    iterations, background = (30, "random") if layout == "blender" else (15, "black")
    result = train(short_run(iterations, layout=layout, background=background))
    assert result.status == "ok"
    assert result.heldout.psnr > result.initial_heldout.psnr


def test_evaluation_draws_one_view_at_a_time_and_keeps_no_graph(prepared, render_by):
    run = prepared(5)
    assert all(rows.requires_grad for rows in run.model.params.values())
    pictures, alive = [], []

    def watched(honest, splats):
        alive.append(sum(picture() is not None for picture in pictures))
        output = honest(splats)
        assert not output.color.requires_grad and not splats.scales.requires_grad
        pictures.append(weakref.ref(output.color))
        return output

    render_by(watched)
    assert training.evaluate(run).views == len(pictures) == 2
    assert max(alive) <= 1  # the picture before, until its name is given to the next


def test_a_large_preview_has_a_thumbnail(tmp_path: Path) -> None:
    rendered, truth = torch.zeros(3, 4, 1602), torch.ones(3, 4, 1602)
    report.write_preview(tmp_path / "renders" / "a.jpg", rendered, truth)
    with (
        Image.open(tmp_path / "renders" / "a.png") as original,
        Image.open(tmp_path / "thumbnails" / "a.png") as smaller,
    ):
        assert (original.size, smaller.size) == ((3204, 4), (1068, 2))
        halves = np.asarray(smaller)[:, :534], np.asarray(smaller)[:, 534:]
    assert halves[0].max() == 0 and halves[1].min() == 255
    report.write_preview(tmp_path / "renders" / "b.jpg", rendered[:, :, :640], truth[:, :, :640])
    assert not (tmp_path / "thumbnails" / "b.png").exists()
