"""Checkpoints: all state of a run, so that a resumed run equals an uninterrupted one bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List

import torch
from torch import Tensor

from smoke_trainer.densify.ops import MOMENTS
from smoke_trainer.errors import SceneError
from smoke_trainer.metrics import Quality
from smoke_trainer.model import GROUPS

if TYPE_CHECKING:
    from smoke_trainer.train import Run

FORMAT = 2


def read_checkpoint(path: Path, device: torch.device) -> Dict[str, Any]:
    """Read a checkpoint without executing code in it; raises SceneError if it is missing or damaged."""
    try:
        payload = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise SceneError(
            f"checkpoint not found: {path}", hint="give the checkpoint.pt of an earlier run"
        ) from None
    except Exception as error:  # noqa: BLE001  (torch.load raises many kinds for a damaged file)
        raise _damaged(path, f"torch.load raises {type(error).__name__}") from None
    if not isinstance(payload, dict) or str(payload.get("format")) != str(FORMAT):
        raise SceneError(f"{path} is not a checkpoint of this version", "its format number differs")
    return payload


def _damaged(path: Path, fault: str) -> SceneError:
    return SceneError(
        f"{path} is not a valid checkpoint: {fault}",
        "the file is damaged or truncated",
        "give the checkpoint.pt of an earlier run",
    )


def save(run: Run) -> None:
    """Write checkpoint.pt to the run's output folder, atomically."""
    run.monitor.flush()
    model, strategy, monitor = run.model, run.strategy, run.monitor
    initial_quality = None
    if run.initial_quality is not None:
        initial_quality = _floats(
            [run.initial_quality.psnr, run.initial_quality.ssim, run.initial_quality.l1]
        )
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
            "norms": {name: _floats(values) for name, values in monitor.gradients.norms.items()},
            "counts": dict(monitor.counts),
            "opacity_resets": monitor.opacity_resets,
            "peak_gaussians": monitor.peak_gaussians,
            "initial_quality": initial_quality,
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
    try:
        _check_belongs(payload, run, path)
        _check_rows(payload)
        _restore_model(run, payload)
        _restore_records(run, payload["rest"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        lines = str(error).splitlines() or [""]
        raise _damaged(path, f"{type(error).__name__}: {lines[0][:200]}") from None


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
    views, theirs = [view.name for view in run.scene.train], payload["rest"].get("train_views")
    if theirs is not None and list(theirs) != views:
        raise SceneError(
            f"{path} trained {len(theirs)} views, of which {len(set(theirs) & set(views))} are among this run's {len(views)}",
            "it was written while training another scene, or with other images on disk",
            "resume with the scene of that run",
        )
    if not all(0 <= int(view) < len(views) for view in payload["rest"]["remaining_views"]):
        raise SceneError(
            f"{path} names training views beyond this scene's {len(views)}",
            "it was written while training another scene",
            "resume with the scene of that run",
        )
    done = int(payload["iteration"])
    if done > run.config.iterations:
        raise SceneError(
            f"{path} was written after iteration {done}, this run has {run.config.iterations}",
            "there is nothing left to train",
            f"use more than --iterations {done}",
        )


def _check_rows(payload: Dict[str, Any]) -> None:
    """Raise ValueError unless every tensor has one float32 row per Gaussian, and moments have their parameter's shape."""
    params = payload["params"]
    count = len(params["xyz"])
    for name in GROUPS:
        tensors, moments = [params[name]], payload["moments"][name]
        if moments:  # none before the first step
            tensors += [moments[key] for key in MOMENTS]
        for rows in tensors:
            is_whole = 0 < count == len(rows) and rows.shape == params[name].shape
            if not is_whole or rows.dtype != torch.float32:
                raise ValueError(f"{name} is not {count} rows of float32")
    for name, rows in payload["strategy"].items():
        if rows.shape != (count,) or rows.dtype != torch.float32:
            raise ValueError(f"{name} is not {count} numbers of float32")


def _restore_model(run: Run, payload: Dict[str, Any]) -> None:
    model, strategy = run.model, run.strategy
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
    model.sh_degree = int(payload["sh_degree"])
    strategy.state.clear()
    strategy.state.update(payload["strategy"])
    strategy.generator.set_state(payload["generator"].cpu())
    run.iteration = int(payload["iteration"])


def _restore_records(run: Run, rest: Dict[str, Any]) -> None:
    run.remaining_views = [int(view) for view in rest["remaining_views"]]
    run.initial_count = int(rest["initial_count"])
    run.strategy.initial_count = run.initial_count
    monitor = run.monitor
    monitor.rewind(run.iteration)
    monitor.losses = rest["losses"].reshape(-1).tolist()
    monitor.counts = {name: int(rest["counts"][name]) for name in monitor.counts}
    monitor.gradients.norms = {name: rest["norms"][name].reshape(-1).tolist() for name in GROUPS}
    monitor.opacity_resets, monitor.peak_gaussians = int(rest["opacity_resets"]), int(rest["peak_gaussians"])
    if rest["initial_quality"] is not None:
        psnr, ssim, l1 = rest["initial_quality"].tolist()
        run.initial_quality = Quality(psnr, ssim, l1, len(run.scene.test))
