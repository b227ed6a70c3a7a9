"""Checkpoints: all state of a run, so that a resumed run equals an uninterrupted one bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List

import torch
from torch import Tensor

from smoke_trainer.errors import SceneError
from smoke_trainer.model import GROUPS
from smoke_trainer.record import ImageQuality

if TYPE_CHECKING:
    from smoke_trainer.train import Run

FORMAT = 2


def read_checkpoint(path: Path, device: torch.device) -> Dict[str, Any]:
    """Read a checkpoint without executing code in it; raises SceneError if it is missing, damaged or of another version."""
    try:
        payload: Dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        version = payload["format"]
    except FileNotFoundError:
        raise SceneError(
            f"checkpoint not found: {path}", hint="give the checkpoint.pt of an earlier run"
        ) from None
    except Exception as error:  # noqa: BLE001  (torch.load raises many kinds for a damaged file)
        raise SceneError(
            f"{path} is not a checkpoint: {type(error).__name__}",
            "the file is damaged or truncated",
            "give the checkpoint.pt of an earlier run",
        ) from None
    if version != FORMAT:
        raise SceneError(f"{path} is not a checkpoint of this version", "its format number differs")
    return payload


def save(run: Run) -> None:
    """Write checkpoint.pt to the run's output folder, atomically."""
    run.monitor.flush()
    model, strategy, monitor = run.model, run.strategy, run.monitor
    before = run.initial_quality or ImageQuality()
    payload = {
        "format": FORMAT,
        "iteration": run.iteration,
        "sh_degree": model.sh_degree,
        "params": {name: model.params[name].detach() for name in GROUPS},
        "moments": {name: dict(model.optimizer.state.get(model.params[name], {})) for name in GROUPS},
        "strategy": dict(strategy.state),
        "generator": strategy.generator.get_state(),
        "rest": {
            "train_views": [view.name for view in run.scene.train],
            "remaining_views": list(run.remaining_views),
            "initial_count": run.initial_count,
            "losses": _floats(monitor.losses),
            "norms": {name: _floats(values) for name, values in monitor.norms.items()},
            "counts": dict(monitor.counts),
            "opacity_resets": monitor.opacity_resets,
            "peak_gaussians": monitor.peak_gaussians,
            "initial_quality": _floats(
                [value for value in (before.psnr, before.ssim, before.l1) if value is not None]
            ),
        },
    }
    path = run.config.out / "checkpoint.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(payload, partial)
    partial.replace(path)


def _floats(values: List[float]) -> Tensor:
    """Floats as a tensor: torch 1.13 cannot read Python floats with weights_only."""
    return torch.tensor(values, dtype=torch.float64)


def resume(run: Run, path: Path) -> None:
    """Continue from a checkpoint; raises SceneError if it is damaged or belongs to another run."""
    payload = read_checkpoint(path, run.device)
    rest = payload["rest"]
    _check_belongs(payload, run, path)
    model, strategy, monitor = run.model, run.strategy, run.monitor
    for group in model.optimizer.param_groups:
        name = group["name"]
        parameter = payload["params"][name].detach().clone().requires_grad_(True)
        model.optimizer.state.pop(group["params"][0], None)
        group["params"][0] = parameter
        model.params[name] = parameter
        if payload["moments"][name]:
            moments = dict(payload["moments"][name])
            # Adam counts its steps on the CPU unless it is fused.
            counter = torch.device("cpu")
            if model.optimizer_engine == "fused":
                counter = parameter.device
            moments["step"] = moments["step"].reshape(()).float().to(counter)
            model.optimizer.state[parameter] = moments
    model.sh_degree = payload["sh_degree"]
    strategy.state.clear()
    strategy.state.update(payload["strategy"])
    strategy.generator.set_state(payload["generator"].cpu())
    strategy.initial_count = rest["initial_count"]
    run.initial_count = rest["initial_count"]
    run.iteration = payload["iteration"]
    run.remaining_views = rest["remaining_views"]
    psnr, ssim, l1 = rest["initial_quality"].tolist()
    run.initial_quality = ImageQuality(psnr, ssim, l1, len(run.scene.test))
    monitor.losses = rest["losses"].tolist()
    monitor.norms = {name: rest["norms"][name].tolist() for name in GROUPS}
    monitor.counts = rest["counts"]
    monitor.opacity_resets, monitor.peak_gaussians = rest["opacity_resets"], rest["peak_gaussians"]


def _check_belongs(payload: Dict[str, Any], run: Run, path: Path) -> None:
    """Raise SceneError for a checkpoint of another SH degree, another scene or a longer run, which would train nothing."""
    for name in GROUPS:
        theirs, ours = payload["params"][name].shape[1:], run.model.params[name].shape[1:]
        if theirs != ours:
            raise SceneError(
                f"{path} has {name} of shape {list(theirs)} per Gaussian, this run needs {list(ours)}",
                "it was written by a run with another --sh-degree",
                "resume with the options of that run",
            )
    views, theirs = [view.name for view in run.scene.train], payload["rest"]["train_views"]
    if theirs != views:
        raise SceneError(
            f"{path} trained {len(theirs)} views, of which {len(set(theirs) & set(views))} are among this run's {len(views)}",
            "it was written while training another scene, or with other images on disk",
            "resume with the scene of that run",
        )
    done = payload["iteration"]
    if done > run.config.iterations:
        raise SceneError(
            f"{path} was written after iteration {done}, this run has {run.config.iterations}",
            "there is nothing left to train",
            f"use more than --iterations {done}",
        )
