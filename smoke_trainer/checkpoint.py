"""Checkpoints: everything that decides how training goes on, so that a resumed run equals an uninterrupted one bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import torch

from smoke_trainer.densify import Strategy
from smoke_trainer.errors import SceneError
from smoke_trainer.model import GROUPS, Gaussians

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
        raise SceneError(f"{path} is no checkpoint: {type(error).__name__}", "the file is damaged") from None
    if not isinstance(payload, dict) or payload.get("format") != FORMAT:
        raise SceneError(f"{path} is not a checkpoint of this trainer", "its format number differs")
    return payload


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
            moments["step"] = moments["step"].to(counter)
            model.optimizer.state[parameter] = moments
    model.sh_degree = int(payload["sh_degree"])
    strategy.state.clear()
    strategy.state.update(payload["strategy"])
    strategy.generator.set_state(payload["generator"].cpu())
    return int(payload["iteration"])
