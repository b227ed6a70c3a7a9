"""The output of a run: result.json, the PLY (read back and rendered again), and previews."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Optional

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from smoke_trainer import __version__, ply
from smoke_trainer.config import TrainConfig
from smoke_trainer.errors import EXIT_FAILURE, EXIT_OK, EXIT_UNKNOWN, SmokeTrainerError
from smoke_trainer.identity import engine_in_use, origin_of
from smoke_trainer.memory import largest_tensors, memory_limit
from smoke_trainer.metrics import Quality
from smoke_trainer.model import GROUPS, Gaussians
from smoke_trainer.monitor import WARM_UP
from smoke_trainer.timing import steadiness

if TYPE_CHECKING:
    from smoke_trainer.train import Run

SCHEMA_VERSION = 3
# What a run writes to its folder.
OUTPUTS = (
    "result.json",
    "metrics.jsonl",
    "checkpoint.pt",
    "point_cloud",
    "renders",
    "thumbnails",
    "tensorboard",
)
THUMBNAIL = 640
"""Pixels. Of pictures that are wider, a smaller copy is kept too."""
# Largest difference of a pixel between the model and its PLY, which holds the same float32 numbers; CUDA kernels may
# sum in another order.
PLY_TOLERANCE_CPU, PLY_TOLERANCE_CUDA = 1e-6, 1e-3


@dataclass(frozen=True)
class Result:
    """How a run ended: `status` (ok, failed, interrupted, or an error's code), exit code, and result.json's content."""

    status: str
    exit_code: int
    document: Dict[str, Any]


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


def write_result(run: Run, status: str, heldout: Quality, trained: Quality) -> Result:
    """Write the PLY and result.json of a run that trained, with the quality of held-out and of training views; a PLY that
    renders differently is a failure."""
    path = run.config.out / "point_cloud" / f"iteration_{run.iteration}" / "point_cloud.ply"
    ply.write_gaussians(path, {name: run.model.params[name].detach().cpu().numpy() for name in GROUPS})
    difference = ply_difference(run, path)
    tolerance = PLY_TOLERANCE_CPU if run.device.type == "cpu" else PLY_TOLERANCE_CUDA
    if not difference <= tolerance:  # nor is it when a pixel is not a number
        status = "failed"
    document = {
        **describe_run(run, status),
        **measurements(run, heldout, trained),
        "ply": {
            "path": path.relative_to(run.config.out).as_posix(),
            "bytes": path.stat().st_size,
            "round_trip_difference": difference,
            "tolerance": tolerance,
        },
    }
    _write_json(run.config.out, document)
    code = {"ok": EXIT_OK, "interrupted": EXIT_UNKNOWN}.get(status, EXIT_FAILURE)
    return Result(status, code, document)


def describe_run(run: Run, status: str) -> Dict[str, Any]:
    """Scene, configuration, and the implementation of each part."""
    return {
        "schema_version": SCHEMA_VERSION,
        "scene": run.scene.name,
        "layout": run.scene.layout,
        "scene_sha256": run.scene.digest(),
        "status": status,
        **known_from_the_start(run),
        "iterations": run.iteration,
        "split": {
            "train": [view.name for view in run.scene.train],
            "test": [view.name for view in run.scene.test],
            "repeated": run.scene.repeated(),
        },
        "notes": list(run.scene.notes),
    }


def known_from_the_start(run: Run) -> Dict[str, Any]:
    """Configuration, implementations, versions and machine: what a run that is killed has told with its first iteration."""
    return {
        "config": config_summary(run.config),
        "resolution": [run.scene.test[0].camera.width, run.scene.test[0].camera.height],
        "implementations": implementations(run),
        "versions": versions(),
        "machine": machine(run.device),
    }


def measurements(run: Run, heldout: Quality, trained: Quality) -> Dict[str, Any]:
    """Quality, speed, counts, gradients, memory."""
    seconds = dict(run.seconds)
    first, last = run.monitor.smoothed_loss()
    return {
        "iterations_per_second": run.speed(),
        "heldout": heldout.as_json(),
        "training_views": trained.as_json(),
        "initial_heldout": None if run.initial_quality is None else run.initial_quality.as_json(),
        "train_loss": {"first": first, "last": last, "windows": run.monitor.loss_windows()},
        "gaussians": {
            "initial": run.initial_count,
            "final": len(run.model),
            "peak": max(run.monitor.peak_gaussians, run.initial_count),
            **run.monitor.counts,
        },
        "gradients": run.monitor.gradients.as_json(),
        "reached": run.monitor.gradients.reached(),
        "opacity_resets": run.monitor.opacity_resets,
        "sh_degree": run.model.sh_degree,
        "memory": run.monitor.memory.as_json(),
        "phases": {name: round(value, 3) for name, value in run.monitor.phases.items()},
        "steadiness": steadiness(
            run.monitor.costs, run.monitor.changed - run.resumed_at, WARM_UP, run.monitor.others
        ),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "largest_tensors": largest_tensors({**run.model.tensors(), **run.images.tensors()})
        if run.config.largest_tensors
        else None,
    }


def write_error(config: TrainConfig, error: SmokeTrainerError, traceback: str = "") -> Result:
    """Write a result.json with the error instead of a result."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "scene": config.scene,
        "config": config_summary(config),
        "status": "failed" if error.exit_code == EXIT_FAILURE else error.code,
        "error": {**error.as_json(), "traceback": traceback or None},
        "versions": versions(),
    }
    # If even this cannot be written, the caller still has the document, and prints it.
    with contextlib.suppress(OSError):
        _write_json(config.out, document)
    return Result(str(document["status"]), error.exit_code, document)


@torch.no_grad()
def ply_difference(run: Run, path: Path) -> float:
    """The largest difference of a pixel (0..1) of a held-out view, rendered from memory and from the PLY file."""
    rows = {
        name: torch.from_numpy(values).to(run.device) for name, values in ply.read_gaussians(path).items()
    }
    again = Gaussians(rows, run.model.max_sh_degree, run.config.lrs)
    again.sh_degree = run.model.sh_degree
    camera, background = run.camera(run.scene.test[0]), run.plain_background()
    one = run.renderer.render(camera, run.model.splats(), background).color
    two = run.renderer.render(camera, again.splats(), background).color
    return float((one - two).abs().max())


def config_summary(config: TrainConfig) -> Dict[str, Any]:
    """The settings that results are judged and compared by."""
    return {
        "preset": config.preset,
        "iterations": config.iterations,
        "psnr_floor": config.psnr_floor,
        "renderer": config.renderer,
        "device": config.device,
        "resolution": config.resolution,
        "strategy": config.strategy,
        "sh_degree": config.sh_degree,
        "budget": config.densify.budget if config.strategy == "budget" else None,
        "cap": config.densify.cap_max if config.strategy == "mcmc" else None,
        "background": config.background,
        "seed": config.seed,
    }


def implementations(run: Run) -> Dict[str, Any]:
    """The implementation of each part that ran."""
    renderer = run.renderer
    return {
        "renderer": {
            "kind": renderer.kind,
            "name": renderer.name,
            "version": renderer.version,
            "engine": engine_in_use(renderer.name, renderer.engine),
            **origin_of(renderer.entry),
            "calls": renderer.calls,
        },
        "ssim": run.ssim.as_json(),
        "knn": run.knn.as_json(),
        "optimizer": {
            "name": "torch.optim.Adam",
            "version": str(torch.__version__),
            "engine": run.model.optimizer_engine,
            **origin_of(type(run.model.optimizer)),
            "calls": run.model.optimizer_steps(),
        },
    }


def versions() -> Dict[str, Any]:
    """Versions of this trainer and of its dependencies."""
    return {
        "smoke_trainer": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": str(np.__version__),
        "cuda": torch.version.cuda,
    }


def machine(device: torch.device) -> Dict[str, Any]:
    """What it ran on: processor, cores this process may use, memory in bytes, GPU; None for what cannot be told."""
    cuda = device.type == "cuda"
    return {
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory": memory_limit(),
        "gpu": torch.cuda.get_device_name(device) if cuda else None,
        "gpu_memory": torch.cuda.get_device_properties(device).total_memory if cuda else None,
    }


def _processor() -> Optional[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def write_preview(path: Path, rendered: Tensor, gt: Tensor) -> None:
    """Write a PNG of two images [3, H, W] in 0..1: the rendering left, the ground truth right.

    Where they are wider than :data:`THUMBNAIL`, a smaller copy goes to ``thumbnails`` beside the folder, for reports.
    """
    both = torch.cat([rendered.clamp(0.0, 1.0), gt.clamp(0.0, 1.0)], dim=2)
    pixels = (both * 255.0).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    target = path.with_suffix(".png")
    target.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(target)
    if (factor := math.ceil(gt.shape[2] / THUMBNAIL)) > 1:
        smaller = target.parent.parent / "thumbnails" / target.name
        smaller.parent.mkdir(exist_ok=True)
        halves = [Image.fromarray(half).reduce(factor) for half in np.split(pixels, 2, axis=1)]
        Image.fromarray(np.concatenate([np.asarray(half) for half in halves], axis=1)).save(smaller)


def _write_json(out: Path, document: Dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    partial = out / "result.json.partial"
    partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(out / "result.json")
