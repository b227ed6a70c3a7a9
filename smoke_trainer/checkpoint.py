"""Checkpoints: everything that decides how training goes on, so that a resumed run equals an uninterrupted one bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List

import torch
from torch import Tensor

from smoke_trainer.densify import Strategy
from smoke_trainer.densify.ops import MOMENTS
from smoke_trainer.errors import SceneError
from smoke_trainer.metrics import Quality
from smoke_trainer.model import GROUPS, Gaussians

if TYPE_CHECKING:
    from smoke_trainer.train import Run

FORMAT = 1


def save_checkpoint(
    path: Path, iteration: int, model: Gaussians, strategy: Strategy, rest: Dict[str, Any]
) -> None:
    """Write a checkpoint atomically. `rest` is plain data and tensors (random state, view order, counts)."""
    payload = {
        "format": FORMAT,
        "iteration": iteration,
        "sh_degree": model.sh_degree,
        "params": {name: model.params[name].detach() for name in GROUPS},
        "moments": {name: dict(model.optimizer.state.get(model.params[name], {})) for name in GROUPS},
        "strategy": dict(strategy.state),
        "generator": strategy.generator.get_state(),
        "rest": rest,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(payload, partial)
    partial.replace(path)


def read_checkpoint(path: Path, device: torch.device) -> Dict[str, Any]:
    """Read a checkpoint without executing anything it may hold; raises SceneError if it is none."""
    try:
        payload = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise SceneError(
            f"there is no checkpoint {path}", remedy="give the checkpoint.pt of an earlier run"
        ) from None
    except Exception as error:  # noqa: BLE001  (torch.load raises many kinds for a damaged file)
        raise _damaged(path, f"torch.load gives {type(error).__name__}") from None
    if not isinstance(payload, dict) or str(payload.get("format")) != str(FORMAT):
        raise SceneError(f"{path} is not a checkpoint of this trainer", "its format number differs")
    return payload


def _damaged(path: Path, what: str) -> SceneError:
    return SceneError(
        f"{path} is no checkpoint ({what})",
        "the file is damaged or was cut short",
        "give the checkpoint.pt of an earlier run",
    )


def restore(payload: Dict[str, Any], model: Gaussians, strategy: Strategy) -> int:
    """Put a checkpoint's state into a fresh model and strategy; returns the iteration it was written after."""
    for group in model.optimizer.param_groups:
        name = group["name"]
        parameter = payload["params"][name].detach().clone().requires_grad_(True)
        model.optimizer.state.pop(group["params"][0], None)
        group["params"][0] = parameter
        model.params[name] = parameter
        if payload["moments"][name]:
            moments = dict(payload["moments"][name])
            # Adam counts its steps on the CPU unless it is fused.
            counter = parameter.device if model.optimizer_engine == "fused" else torch.device("cpu")
            moments["step"] = moments["step"].reshape(()).float().to(counter)
            model.optimizer.state[parameter] = moments
    model.sh_degree = int(payload["sh_degree"])
    strategy.state.clear()
    strategy.state.update(payload["strategy"])
    strategy.generator.set_state(payload["generator"].cpu())
    return int(payload["iteration"])


def save(run: Run) -> None:
    """Write checkpoint.pt into the run's output folder."""
    run.monitor.flush()
    quality = run.initial_quality
    rest: Dict[str, Any] = {
        "train_views": [view.name for view in run.scene.train],
        "bag": list(run.bag),
        "initial_count": run.initial_count,
        "losses": _floats(run.monitor.losses),
        "norms": {name: _floats(values) for name, values in run.monitor.health.norms.items()},
        "counts": dict(run.monitor.counts),
        "opacity_resets": run.monitor.opacity_resets,
        "peak_gaussians": run.monitor.peak_gaussians,
        "initial_quality": None if quality is None else _floats([quality.psnr, quality.ssim, quality.l1]),
    }
    save_checkpoint(run.config.out / "checkpoint.pt", run.done, run.model, run.strategy, rest)


def _floats(values: List[float]) -> Tensor:
    """Numbers as a tensor: the safe reader of torch 1.13 knows no Python floats."""
    return torch.tensor(values, dtype=torch.float64)


def resume(run: Run, path: Path) -> None:
    """Continue where a checkpoint was written; raises SceneError if `path` is none, or one of another kind of run."""
    payload = read_checkpoint(path, run.device)
    try:
        _check_belongs(payload, run, path)
        _check_rows(payload)
        _check_length(path, int(payload["iteration"]), run.config.iterations)
        run.done = restore(payload, run.model, run.strategy)
        _restore_records(run, payload["rest"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        words = str(error).splitlines() or [""]
        raise _damaged(path, f"{type(error).__name__}: {words[0][:200]}") from None


def _check_belongs(payload: Dict[str, Any], run: Run, path: Path) -> None:
    """Another SH degree or another scene cannot be gone on with."""
    for name in GROUPS:
        theirs, ours = payload["params"][name].shape[1:], run.model.params[name].shape[1:]
        if theirs != ours:
            raise SceneError(
                f"{path} holds {name} of shape {list(theirs)} per Gaussian, this run needs {list(ours)}",
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
    if not all(0 <= int(view) < len(views) for view in payload["rest"]["bag"]):
        raise SceneError(
            f"{path} names training views beyond this scene's {len(views)}",
            "it was written while training another scene",
            "resume with the scene of that run",
        )


def _check_length(path: Path, done: int, asked: int) -> None:
    """A run that is shorter than its checkpoint would train nothing and be called whatever it was asked to be."""
    if done > asked:
        raise SceneError(
            f"{path} was written after iteration {done}, this run has {asked}",
            "there is nothing left to train",
            f"ask for more than --iterations {done}",
        )


def _check_rows(payload: Dict[str, Any]) -> None:
    """Moments are shaped like their parameters, and every tensor has one float32 row per Gaussian; raises ValueError."""
    params = payload["params"]
    count = len(params["xyz"])
    for name in GROUPS:
        moments = payload["moments"][name]
        for rows in [params[name]] + ([moments[key] for key in MOMENTS] if moments else []):
            if (
                count == 0
                or len(rows) != count
                or rows.shape != params[name].shape
                or rows.dtype != torch.float32
            ):
                raise ValueError(f"{name} is not {count} rows of float32")
    for name, rows in payload["strategy"].items():
        if rows.shape != (count,) or rows.dtype != torch.float32:
            raise ValueError(f"{name} is not {count} numbers of float32")


def _restore_records(run: Run, rest: Dict[str, Any]) -> None:
    """What the report and the order of views go on from."""
    run.bag = [int(view) for view in rest["bag"]]
    run.initial_count = int(rest["initial_count"])
    run.strategy.initial_count = run.initial_count
    monitor = run.monitor
    monitor.rewind(run.done)
    monitor.losses = rest["losses"].reshape(-1).tolist()
    monitor.counts = {name: int(rest["counts"][name]) for name in monitor.counts}
    monitor.health.norms = {name: rest["norms"][name].reshape(-1).tolist() for name in GROUPS}
    monitor.opacity_resets, monitor.peak_gaussians = int(rest["opacity_resets"]), int(rest["peak_gaussians"])
    if rest["initial_quality"] is not None:
        psnr, ssim, l1 = rest["initial_quality"].tolist()
        run.initial_quality = Quality(psnr, ssim, l1, len(run.scene.test))
