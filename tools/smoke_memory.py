"""Measures the smoke trainer's own memory by phase, for ``tests/records/smoke_memory.json``.

    python -m tools.smoke_memory SCENE STRATEGY     prints one row

Bytes are those that torch's profiler counts as allocated: while the scene is loaded, in a training step of the last epoch beyond
what is held (the most of all views, without buffers that the kernels keep), and in the last evaluation.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from smoke_trainer.config import TrainConfig, scaled_to
from smoke_trainer.train import Run, evaluate, prepare, train_step
from splatfix.app.calibrate import DENSIFIED_TWICE, ITERATIONS
from splatfix.kernels import rasterizer
from splatfix.kernels.blending import _kept
from splatfix.kernels.scene import arrange

RENDER = "splatfix: render"


def allocated(action: Callable[[], object]) -> dict[str, int]:
    """The most bytes that an action holds of what it allocates: while it renders, in its backward pass, and else."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        action()
    events = profiler.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    renderings = [(event.start_ns(), event.end_ns()) for event in events if event.name() == RENDER]
    backward = min((event.start_ns() for event in events if "Backward" in event.name()), default=math.inf)
    most = {"forward": 0, "loss": 0, "backward": 0}
    held = 0
    for moment, number in changes:
        held += number
        phase = "loss"
        if moment >= backward:
            phase = "backward"
        elif any(start <= moment <= end for start, end in renderings):
            phase = "forward"
        most[phase] = max(most[phase], held)
    return most


def workspace() -> int:
    """Bytes that the rasterizer's kernels keep between views."""
    buffers = [buffer for work in _kept.by_dtype.values() for buffer in work._flat.values()]
    return sum(buffer.numel() * buffer.element_size() for buffer in buffers)


def measured(scene: str, strategy: str, out: Path) -> dict[str, object]:
    """A row of the record."""
    config = scaled_to(TrainConfig(scene=scene, iterations=ITERATIONS, out=out, strategy=strategy))
    runs: list[Run] = []
    loading = max(allocated(lambda: runs.append(prepare(config))).values())
    run, views, early = runs[0], [], 0
    steps: dict[str, int] = {"forward": 0, "loss": 0, "backward": 0}
    render = run.renderer.render

    def rendering(*arguments: Any) -> Any:
        with record_function(RENDER):
            return render(*arguments)

    train = len(run.scene.train)

    def counting(*arguments: Any) -> Any:
        arranged = arrange(*arguments)
        views.append((arranged[2].numel(), arranged[3].pairs.gaussian.numel()))
        return arranged

    with (
        mock.patch.object(rasterizer, "arrange", counting),
        mock.patch.object(run.renderer, "render", rendering),
    ):
        for iteration in range(1, ITERATIONS + 1):
            if iteration <= ITERATIONS - train:
                train_step(run, iteration)
                views.clear()
            else:
                before = workspace()
                peaks = allocated(partial(train_step, run, iteration))
                grown = workspace() - before
                steps = {moment: max(most, peaks[moment] - grown) for moment, most in steps.items()}
            if iteration == DENSIFIED_TWICE:
                early = len(run.model)
    most_in_view, most_pairs = (max(view[at] for view in views) for at in (0, 1))
    count = len(run.model)
    for view in run.scene.test:
        run.images.get(view)
    camera = run.scene.train[0].camera
    with mock.patch.object(run.renderer, "render", rendering):
        evaluated = allocated(lambda: evaluate(run))
    return {
        "scene": scene,
        "strategy": strategy,
        "photos": train + len(run.scene.test),
        "width": camera.width,
        "height": camera.height,
        "points": run.initial_count,
        "early": early,
        "final": count,
        "in_view": round(most_in_view / count, 3),
        "pairs": most_pairs,
        "loading": loading,
        "held": run.held_bytes(),
        "photos_held": run.images.held_bytes,
        "view": max(steps.values()),
        "evaluation": max(evaluated.values()),
        "moments": {
            "view": {name: steps[name] for name in ("loss", "backward")},
            "evaluation": {name: evaluated[name] for name in ("forward", "loss")},
        },
        "workspace": workspace(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the row of one scene and strategy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scene", help="a sample's name, or a folder")
    parser.add_argument("strategy", choices=("default", "mcmc"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as out:
        print(json.dumps(measured(options.scene, options.strategy, Path(out))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
