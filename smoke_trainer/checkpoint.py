"""Checkpoints: all state of a run, so that a resumed run equals an uninterrupted one bit for bit."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict

import torch

from smoke_trainer.errors import SceneError
from smoke_trainer.model import GROUPS, Gaussians
from smoke_trainer.record import ImageQuality

if TYPE_CHECKING:
    from smoke_trainer.train import Run

FORMAT = 3


def read_checkpoint(path: Path, device: torch.device) -> Dict[str, Any]:
    """Read a checkpoint without executing code in it; raises SceneError if it is missing, damaged or of another version."""
    try:
        payload: Dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        if payload["format"] != FORMAT:
            raise ValueError("another format")
        payload["rest"] = json.loads(payload["rest"])
    except Exception as error:  # noqa: BLE001  (torch.load raises many kinds for a damaged file)
        raise SceneError(
            f"{path} is not a checkpoint of this version: {type(error).__name__}",
            "it is not there, damaged, truncated, or of another version",
            "give the checkpoint.pt of an earlier run",
        ) from None
    return payload


def save(run: Run) -> None:
    """Write checkpoint.pt to the run's output folder, atomically."""
    model, strategy = run.model, run.strategy
    payload = {
        "format": FORMAT,
        "params": {name: model.params[name].detach() for name in GROUPS},
        "moments": model.optimizer.state_dict()["state"],
        "strategy": strategy.state,
        "generator": strategy.generator.get_state(),
        # as text: torch 1.13 reads no Python floats with weights_only
        "rest": json.dumps(
            {
                "iteration": run.iteration,
                "sh_degree": model.sh_degree,
                "train_views": [view.name for view in run.scene.train],
                "remaining_views": run.remaining_views,
                "initial_count": strategy.initial_count,
                "initial_quality": asdict(run.initial_quality or ImageQuality()),
                "history": run.monitor.history(),
            }
        ),
    }
    path = run.config.out / "checkpoint.pt"
    partial = path.with_suffix(".partial")
    torch.save(payload, partial)
    partial.replace(path)


def resume(run: Run, path: Path) -> None:
    """Continue from a checkpoint; raises SceneError if it is damaged or belongs to another run."""
    payload = read_checkpoint(path, run.device)
    rest = payload["rest"]
    differs = []
    if payload["params"]["f_rest"].shape[1:] != run.model.params["f_rest"].shape[1:]:
        differs.append("another --sh-degree")
    if rest["train_views"] != [view.name for view in run.scene.train]:
        differs.append("other training views")
    if rest["iteration"] > run.config.iterations:
        differs.append(f"{rest['iteration']} iterations, more than --iterations")
    if differs:
        raise SceneError(
            f"{path} was written by another run: it has {', '.join(differs)}",
            "what it holds does not fit, or nothing is left to train",
            "resume with the scene and the options of that run",
        )
    run.model = Gaussians(payload["params"], run.model.max_sh_degree, run.config.lrs)
    run.model.sh_degree = rest["sh_degree"]
    adam = run.model.optimizer
    adam.load_state_dict({**adam.state_dict(), "state": payload["moments"]})
    run.strategy.state = payload["strategy"]
    run.strategy.generator.set_state(payload["generator"].cpu())
    run.strategy.initial_count = rest["initial_count"]
    run.iteration = rest["iteration"]
    run.remaining_views = rest["remaining_views"]
    run.initial_quality = ImageQuality(**rest["initial_quality"])
    run.monitor.begin_with(rest["history"])
