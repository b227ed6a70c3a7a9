"""The output of a run: result.json, the PLY (read back and rendered again), and previews."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import platform
import statistics
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from smoke_trainer import __version__, ply
from smoke_trainer.backends import Part
from smoke_trainer.config import TrainConfig
from smoke_trainer.errors import SmokeTrainerError, TrainingFailed
from smoke_trainer.model import GROUPS, Gaussians
from smoke_trainer.record import (
    Config,
    GaussianCounts,
    GroupGradients,
    ImageQuality,
    PlyCheck,
    Split,
    TrainerError,
    TrainingMachine,
    TrainingRecord,
    TrainLoss,
)

if TYPE_CHECKING:
    from smoke_trainer.train import Run

# What a run writes to its folder.
OUTPUTS = ("result.json", "metrics.jsonl", "checkpoint.pt", "point_cloud", "renders", "thumbnails")
SMOOTHED_OVER = 10  # iterations at either end, of which the loss is averaged
THUMBNAIL = 640
"""Pixels. Of pictures that are wider, a smaller copy is kept too."""
# Largest difference of a pixel between the model and its PLY, which holds the same float32 numbers; CUDA kernels may
# sum in another order.
PLY_TOLERANCE_CPU, PLY_TOLERANCE_CUDA = 1e-6, 1e-3


def move_aside(out: Path) -> None:
    """Move the output of an earlier run in `out` to `previous` there (`previous-2`, ...): a checkpoint may be hours of work."""
    earlier = [out / name for name in OUTPUTS if (out / name).exists()]
    if not earlier:
        return
    names = itertools.chain(["previous"], (f"previous-{count}" for count in itertools.count(2)))
    kept = next(out / name for name in names if not (out / name).exists())
    kept.mkdir()
    for path in earlier:
        path.rename(kept / path.name)


def write_result(run: Run, status: str, heldout: ImageQuality, trained: ImageQuality) -> TrainingRecord:
    """Write the PLY and result.json of a run that trained, with the quality of held-out and of training views; a PLY that
    renders differently is a failure."""
    ply_check, is_same = write_ply(run)
    if not is_same:
        status = "failed"
    scene, monitor = run.scene, run.monitor
    scene_sha256, repeated = scene.fingerprint()
    memory = monitor.memory.summary()  # before all lines are read
    lines = [json.loads(line) for line in monitor.history().splitlines()]
    record = TrainingRecord(
        scene=scene.name,
        layout=scene.layout,
        scene_sha256=scene_sha256,
        status=status,
        **run_setup(run),
        iterations=run.iteration,
        split=Split([view.name for view in scene.train], [view.name for view in scene.test], repeated),
        notes=list(scene.notes),
        iterations_per_second=run.speed(),
        heldout=heldout,
        training_views=trained,
        initial_heldout=run.initial_quality,
        train_loss=TrainLoss(_mean(lines[:SMOOTHED_OVER]), _mean(lines[-SMOOTHED_OVER:])),
        gaussians=GaussianCounts(
            initial=run.strategy.initial_count,
            final=len(run.model),
            peak=max([run.strategy.initial_count, *(line["gaussians"] for line in lines)]),
            **{name: sum(line[name] for line in lines) for name in ("cloned", "split", "pruned")},
        ),
        gradients={name: _gradients(lines, name) for name in GROUPS},
        updates=monitor.updates.summary(),
        reached=monitor.reached.summary(),
        opacity_resets=sum(line["opacity_reset"] for line in lines),
        sh_degree=run.model.sh_degree,
        memory=memory,
        phases={name: round(value, 3) for name, value in monitor.phases.items()},
        seconds={name: round(value, 3) for name, value in run.seconds.items()},
        ply=ply_check,
    )
    _write_json(run.config.out, record)
    return record


def _mean(lines: List[Dict[str, Any]]) -> Optional[float]:
    """Return the mean loss of some iterations."""
    return statistics.fmean(line["loss"] for line in lines) if lines else None


def _gradients(lines: List[Dict[str, Any]], group: str) -> GroupGradients:
    """Return the number of a group's steps, of zero and non-finite ones; min, median and max of the finite norms."""
    norms = [line["gradients"][group] for line in lines if group in line["gradients"]]
    finite = [norm for norm in norms if norm is not None]
    return GroupGradients(
        steps=len(norms),
        zero_steps=finite.count(0.0),
        non_finite_steps=len(norms) - len(finite),
        min=min(finite, default=None),
        median=statistics.median(finite) if finite else None,
        max=max(finite, default=None),
    )


def write_error(
    config: TrainConfig, error: SmokeTrainerError, traceback: Optional[str] = None
) -> TrainingRecord:
    """Write a result.json with the error instead of a result, and say it."""
    sys.stderr.write(f"{error}\n")
    status = "failed" if isinstance(error, TrainingFailed) else error.code
    record = TrainingRecord(
        scene=config.scene,
        config=config_summary(config),
        status=status,
        error=TrainerError(error.code, error.message, error.note, error.hint, traceback),
        versions=versions(),
    )
    with contextlib.suppress(OSError):
        _write_json(config.out, record)
    return record


def run_setup(run: Run) -> Dict[str, Any]:
    """Configuration, implementations, versions and machine: known with the first iteration, whatever becomes of the run."""
    camera, adam = run.scene.test[0].camera, run.model.optimizer
    optimizer = Part("torch.optim.Adam", torch.__version__, run.model.optimizer_engine, type(adam))
    optimizer.calls = int(adam.state.get(run.model.params["xyz"], {}).get("step", 0))
    parts = {"renderer": run.renderer, "ssim": run.ssim, "knn": run.knn, "optimizer": optimizer}
    return {
        "config": config_summary(run.config),
        "resolution": [camera.width, camera.height],
        "implementations": {name: part.implementation() for name, part in parts.items()},
        "versions": versions(),
        "machine": hardware(run.device),
    }


def config_summary(config: TrainConfig) -> Config:
    """The settings that results are judged and compared by; `budget` and `cap` where the strategy has one."""
    # of one name in both
    shared = {row.name: getattr(config, row.name) for row in fields(Config) if hasattr(config, row.name)}
    budget = config.densify.budget if config.strategy == "budget" else None
    cap = config.densify.cap_max if config.strategy == "mcmc" else None
    return Config(**shared, budget=budget, cap=cap)


def versions() -> Dict[str, Optional[str]]:
    """Versions of this trainer and of its dependencies, and the CUDA that torch was built with."""
    return {
        "smoke_trainer": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": str(np.__version__),
        "cuda": torch.version.cuda,
    }


def hardware(device: torch.device) -> TrainingMachine:
    """The machine that it runs on, with the cores that this process may use; None for what cannot be determined."""
    cores = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):  # Linux; a container may be given fewer than there are
        cores = len(os.sched_getaffinity(0))
    cpu = platform.processor() or None
    with contextlib.suppress(OSError):  # not Linux
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    machine = TrainingMachine(cpu, cores, torch.get_num_threads())
    if device.type != "cuda":
        return machine
    about, name = torch.cuda.get_device_properties(device), torch.cuda.get_device_name(device)
    integrated = bool(about.is_integrated) if hasattr(about, "is_integrated") else None
    return replace(machine, gpu=name, gpu_memory=about.total_memory, gpu_integrated=integrated)


@torch.no_grad()
def write_ply(run: Run) -> Tuple[PlyCheck, bool]:
    """Write the Gaussians as a PLY, read it back, and render it beside the model in memory: the largest difference of a pixel
    (0..1) of a held-out view, and whether that is within the tolerance."""
    model = run.model
    path = run.config.out / "point_cloud" / f"iteration_{run.iteration}" / "point_cloud.ply"
    ply.write_gaussians(path, {name: model.params[name].detach().cpu().numpy() for name in GROUPS})
    rows = {
        name: torch.from_numpy(values).to(run.device) for name, values in ply.read_gaussians(path).items()
    }
    again = Gaussians(rows, model.max_sh_degree, run.config.lrs)
    again.sh_degree = model.sh_degree
    camera, background = run.camera(run.scene.test[0]), run.plain_background()
    from_memory = run.renderer.render(camera, model.splats(), background).color
    from_file = run.renderer.render(camera, again.splats(), background).color
    difference = float((from_memory - from_file).abs().max())
    tolerance = PLY_TOLERANCE_CPU if run.device.type == "cpu" else PLY_TOLERANCE_CUDA
    where = path.relative_to(run.config.out).as_posix()
    # not within it either where a pixel is not a number
    return PlyCheck(where, path.stat().st_size, difference, tolerance), difference <= tolerance


def write_preview(path: Path, rendered: Tensor, gt: Tensor) -> None:
    """Write a PNG of two images [3, H, W] in 0..1: the rendering left, the ground truth right.

    Where they are wider than :data:`THUMBNAIL`, a smaller copy goes to ``thumbnails`` beside the folder, for reports.
    """
    both = torch.cat([rendered.clamp(0.0, 1.0), gt.clamp(0.0, 1.0)], dim=2)
    pixels = (both * 255.0).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    target = path.with_suffix(".png")
    target.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(target)
    factor = math.ceil(gt.shape[2] / THUMBNAIL)
    if factor > 1:
        smaller = target.parent.parent / "thumbnails" / target.name
        smaller.parent.mkdir(exist_ok=True)
        halves = [Image.fromarray(half).reduce(factor) for half in np.split(pixels, 2, axis=1)]
        Image.fromarray(np.concatenate([np.asarray(half) for half in halves], axis=1)).save(smaller)


def _write_json(out: Path, record: TrainingRecord) -> None:
    out.mkdir(parents=True, exist_ok=True)
    partial = out / "result.json.partial"
    partial.write_text(json.dumps(asdict(record), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(out / "result.json")
