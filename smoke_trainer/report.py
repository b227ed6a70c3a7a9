"""The output of a run: result.json, the PLY (read back and rendered again), and previews."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Optional, Set

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from smoke_trainer import __version__, ply
from smoke_trainer.config import TrainConfig
from smoke_trainer.errors import EXIT_FAILURE, EXIT_OK, EXIT_UNKNOWN, SmokeTrainerError
from smoke_trainer.identity import implementation_of
from smoke_trainer.memory import largest_tensors, memory_limit
from smoke_trainer.metrics import Quality
from smoke_trainer.model import GROUPS, Gaussians
from smoke_trainer.monitor import WARM_UP
from smoke_trainer.timing import steadiness

if TYPE_CHECKING:
    from smoke_trainer.train import Run

SCHEMA_VERSION = 5
"""Of result.json. splatfix/certify/record.py says what each of its fields means, and reads it: one that changes its meaning, or
goes, changes this."""
# The settings that results are judged and compared by; `budget` and `cap` where the strategy has one.
CONFIG = (
    *("preset", "iterations", "psnr_floor", "renderer", "device", "resolution", "strategy", "sh_degree"),
    *("budget", "cap", "background", "seed"),
)
EXIT_CODES = {"ok": EXIT_OK, "interrupted": EXIT_UNKNOWN, "failed": EXIT_FAILURE}
"""Of a run that trained, by its status."""
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
class TrainingResult:
    """How a run ended: what result.json holds, the exit code of the command, and the error that ended it."""

    document: Dict[str, Any]
    exit_code: int
    error: Optional[SmokeTrainerError] = None

    @property
    def status(self) -> str:
        return str(self.document["status"])


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


def write_result(run: Run, status: str, heldout: Quality, trained: Quality) -> TrainingResult:
    """Write the PLY and result.json of a run that trained, with the quality of held-out and of training views; a PLY that
    renders differently is a failure."""
    ply_check = write_ply(run)
    # written so that it also fails when a pixel is not a number
    if not ply_check["round_trip_difference"] <= ply_check["tolerance"]:
        status = "failed"
    document = training_report(run, status, heldout, trained, ply_check)
    _write_json(run.config.out, document)
    return TrainingResult(document, EXIT_CODES[status])


def write_ply(run: Run) -> Dict[str, Any]:
    """Write the Gaussians as a PLY, read it back, and render it beside the model in memory: its path below the output folder,
    and the largest difference of a pixel."""
    path = run.config.out / "point_cloud" / f"iteration_{run.iteration}" / "point_cloud.ply"
    ply.write_gaussians(path, {name: run.model.params[name].detach().cpu().numpy() for name in GROUPS})
    return {
        "path": path.relative_to(run.config.out).as_posix(),
        "bytes": path.stat().st_size,
        "round_trip_difference": ply_difference(run, path),
        "tolerance": PLY_TOLERANCE_CPU if run.device.type == "cpu" else PLY_TOLERANCE_CUDA,
    }


def run_setup(run: Run) -> Dict[str, Any]:
    """Configuration, implementations, versions and machine: known with the first iteration, whatever becomes of the run."""
    camera = run.scene.test[0].camera
    return {
        "config": config_summary(run.config),
        "resolution": [camera.width, camera.height],
        "implementations": implementations(run),
        "versions": versions(),
        "machine": hardware(run.device),
    }


def training_report(
    run: Run, status: str, heldout: Quality, trained: Quality, ply_check: Dict[str, Any]
) -> Dict[str, Any]:
    """Everything that result.json says of a run that trained."""
    scene, monitor = run.scene, run.monitor
    first_loss, last_loss = monitor.smoothed_loss()
    tensors = None
    if run.config.largest_tensors:
        tensors = largest_tensors({**run.model.tensors(), **run.images.tensors()})
    return {
        "schema_version": SCHEMA_VERSION,
        "scene": scene.name,
        "layout": scene.layout,
        "scene_sha256": scene.digest(),
        "status": status,
        **run_setup(run),
        "iterations": run.iteration,
        "split": {
            "train": [view.name for view in scene.train],
            "test": [view.name for view in scene.test],
            "repeated": scene.repeated(),
        },
        "notes": list(scene.notes),
        "iterations_per_second": run.speed(),
        "heldout": asdict(heldout),
        "training_views": asdict(trained),
        "initial_heldout": asdict(run.initial_quality) if run.initial_quality else None,
        "train_loss": {"first": first_loss, "last": last_loss},
        "gaussians": {
            "initial": run.initial_count,
            "final": len(run.model),
            "peak": max(monitor.peak_gaussians, run.initial_count),
            **monitor.counts,
        },
        "gradients": monitor.gradients.summary(),
        "updates": {name: row._asdict() for name, row in monitor.updates.summary().items()},
        "reached": monitor.gradients.reached(),
        "opacity_resets": monitor.opacity_resets,
        "sh_degree": run.model.sh_degree,
        "memory": monitor.memory.summary(),
        "phases": rounded(monitor.phases),
        # costs are of this run only, `changed` counts from the start of the one that it resumes
        "steadiness": steadiness(
            monitor.costs,
            monitor.changed - run.resumed_at,
            WARM_UP,
            monitor.others,
            {iteration - 1 - run.resumed_at for iteration in eventful_iterations(run)},
        ),
        "seconds": rounded(run.seconds),
        "largest_tensors": tensors,
        "ply": ply_check,
    }


def eventful_iterations(run: Run) -> Set[int]:
    """Those that had more to do than their neighbours, and the ones behind them, whose memory is allocated anew: Gaussians
    were added or removed, a photo was decoded, an update looked at, a degree of spherical harmonics came in, or held-out
    views had been rendered."""
    config = run.config
    eventful = set(run.monitor.eventful)
    interval = config.sh_degree_interval
    eventful.update(interval * degree for degree in range(1, run.model.max_sh_degree + 1))
    if config.evaluate_every:
        eventful.update(range(config.evaluate_every + 1, run.iteration + 1, config.evaluate_every))
    return eventful | {iteration + 1 for iteration in eventful}


def rounded(seconds: Dict[str, float]) -> Dict[str, float]:
    """To milliseconds."""
    return {name: round(value, 3) for name, value in seconds.items()}


def write_error(config: TrainConfig, error: SmokeTrainerError, traceback: str = "") -> TrainingResult:
    """Write a result.json with the error instead of a result."""
    status = error.code
    if error.exit_code == EXIT_FAILURE:
        status = "failed"
    document = {
        "schema_version": SCHEMA_VERSION,
        "scene": config.scene,
        "config": config_summary(config),
        "status": status,
        "error": {**error.as_json(), "traceback": traceback or None},
        "versions": versions(),
    }
    # If even this cannot be written, the caller still has the report, and prints it.
    with contextlib.suppress(OSError):
        _write_json(config.out, document)
    return TrainingResult(document, error.exit_code, error)


@torch.no_grad()
def ply_difference(run: Run, path: Path) -> float:
    """The largest difference of a pixel (0..1) of a held-out view, rendered from memory and from the PLY file."""
    rows = {
        name: torch.from_numpy(values).to(run.device) for name, values in ply.read_gaussians(path).items()
    }
    again = Gaussians(rows, run.model.max_sh_degree, run.config.lrs)
    again.sh_degree = run.model.sh_degree
    camera, background = run.camera(run.scene.test[0]), run.plain_background()
    from_memory = run.renderer.render(camera, run.model.splats(), background).color
    from_file = run.renderer.render(camera, again.splats(), background).color
    return float((from_memory - from_file).abs().max())


def config_summary(config: TrainConfig) -> Dict[str, Any]:
    """The settings that results are judged and compared by."""
    values = {name: getattr(config, name, None) for name in CONFIG}
    if config.strategy == "budget":
        values["budget"] = config.densify.budget
    elif config.strategy == "mcmc":
        values["cap"] = config.densify.cap_max
    return values


def implementations(run: Run) -> Dict[str, Dict[str, Any]]:
    """The implementation of each part that ran."""
    renderer, model = run.renderer, run.model
    drawn_by = implementation_of(
        renderer.entry, renderer.name, renderer.version, renderer.engine, renderer.calls
    )
    return {
        "renderer": {**drawn_by, "kind": renderer.kind},
        "ssim": run.ssim.implementation(),
        "knn": run.knn.implementation(),
        "optimizer": implementation_of(
            type(model.optimizer),
            "torch.optim.Adam",
            str(torch.__version__),
            model.optimizer_engine,
            model.optimizer_steps(),
        ),
    }


def versions() -> Dict[str, Optional[str]]:
    """Versions of this trainer and of its dependencies, and the CUDA that torch was built with."""
    return {
        "smoke_trainer": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": str(np.__version__),
        "cuda": torch.version.cuda,
    }


def hardware(device: torch.device) -> Dict[str, Any]:
    """The machine that it runs on, with the cores that this process may use; None for what cannot be determined."""
    cores = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):  # Linux; a container may be given fewer than there are
        cores = len(os.sched_getaffinity(0))
    gpu, gpu_memory, integrated = None, None, None
    if device.type == "cuda":
        gpu, about = torch.cuda.get_device_name(device), torch.cuda.get_device_properties(device)
        gpu_memory = about.total_memory
        if hasattr(about, "is_integrated"):
            integrated = bool(about.is_integrated)
    return {
        "cpu": _processor(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "memory": memory_limit(),
        "gpu": gpu,
        "gpu_memory": gpu_memory,
        "gpu_integrated": integrated,
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
    factor = math.ceil(gt.shape[2] / THUMBNAIL)
    if factor > 1:
        smaller = target.parent.parent / "thumbnails" / target.name
        smaller.parent.mkdir(exist_ok=True)
        halves = [Image.fromarray(half).reduce(factor) for half in np.split(pixels, 2, axis=1)]
        Image.fromarray(np.concatenate([np.asarray(half) for half in halves], axis=1)).save(smaller)


def _write_json(out: Path, document: Dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    partial = out / "result.json.partial"
    partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(out / "result.json")
