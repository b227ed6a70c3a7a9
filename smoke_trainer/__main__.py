"""Train a 3D Gaussian Splatting scene: python -m smoke_trainer SCENE --iterations N

With --data ROOT and no SCENE, train every scene in that folder: the public ones (garden, truck, ...) at their usual resolution
and budget, others as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Dict, List, Optional

from smoke_trainer.config import PAPER_ITERATIONS, PRESETS, Preset, TrainConfig, scaled_to
from smoke_trainer.data.find import BUDGET_REFINE_EVERY, FoundScene, layout_of, locate, survey
from smoke_trainer.errors import EXIT_UNKNOWN, PackageMissing, SmokeTrainerError, UsageError, exit_code_of
from smoke_trainer.progress import show_progress
from smoke_trainer.record import TrainingRecord

# By name, as argparse takes them, with the `least` value of some.
OPTIONS: Dict[str, Dict[str, Any]] = json.loads(
    Path(__file__).with_name("options.json").read_text(encoding="utf-8")
)
KINDS: Dict[str, Any] = {"int": int, "float": float, "Path": Path}


def parser() -> argparse.ArgumentParser:
    """All options, from ``options.json``; defaults are the paper's."""
    p = argparse.ArgumentParser(
        prog="python -m smoke_trainer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, row in OPTIONS.items():
        settings = {key: value for key, value in row.items() if key != "least"}
        if "type" in row:
            settings["type"] = KINDS[row["type"]]
        p.add_argument(name, **settings)
    return p


def config_from(options: argparse.Namespace) -> TrainConfig:
    """The configuration that the options ask for: explicit options win over the preset, then the schedule is scaled."""
    folder = Path(options.scene)
    scene = FoundScene(folder.resolve().name, folder, layout_of(folder))
    if options.data is not None:
        scene = locate(options.scene, options.data)
    # What the options do not say: the preset's run, or the paper's at the size that the scene is usually trained at.
    run = Preset(PAPER_ITERATIONS, TrainConfig.resolution, random_points=TrainConfig.random_points)
    if options.preset:
        presets = PRESETS[options.preset]
        if folder.name not in presets:
            raise UsageError(
                f"there is no {options.preset!r} preset for {folder.name!r}",
                hint=f"give --iterations, or choose from: {', '.join(presets)}",
            )
        run = presets[folder.name]
    elif scene.public is not None:
        run = replace(run, resolution=scene.public.divisor)
    values = {**vars(run), "psnr_floor": None, "strategy": "default"}
    if scene.public is not None and options.data is not None:
        values["strategy"] = "budget"
    named = {field.name for field in fields(TrainConfig)}
    values.update(
        {name: value for name, value in vars(options).items() if name in named and value is not None}
    )
    values["scene"] = str(scene.folder)
    config = TrainConfig(**values)
    # The floor was measured for exactly this length and size, and from the preset's own points.
    measured = (run.iterations, run.resolution, None)
    if (config.iterations, config.resolution, options.random_points) == measured:
        config = replace(config, psnr_floor=run.psnr_floor)
    densify = config.densify
    if scene.public is not None and config.strategy == "budget":
        densify = replace(densify, budget=scene.public.budget, refine_every=BUDGET_REFINE_EVERY)
    if options.cap is not None:
        densify = replace(densify, cap_max=options.cap)
    if options.budget is not None:
        densify = replace(densify, budget=options.budget)
    return scaled_to(replace(config, densify=densify))


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command and return its exit code: 0 trained, 1 failed, 2 wrong usage, 3 could not be determined."""
    options = parser().parse_args(arguments)
    try:
        for name, row in OPTIONS.items():
            value = getattr(options, name.strip("-").replace("-", "_"))
            if "least" in row and value is not None and not value >= row["least"]:
                raise UsageError(f"{name} must be at least {row['least']}")
        if options.list or options.scene is None:
            return _train_data(options)
        return exit_code_of(_train_one(config_from(options)).status)
    except SmokeTrainerError as error:
        sys.stderr.write(f"{error}\n")
        return exit_code_of(error.code)
    except KeyboardInterrupt as stop:
        advice = f"continue with --resume {stop}" if stop.args else "no checkpoint was written"
        sys.stderr.write(f"interrupted; {advice}\n")
        return EXIT_UNKNOWN


def _train_data(options: argparse.Namespace) -> int:
    """Train every scene of --data, each to its own folder of --out, or list them; returns the worst of their exit codes."""
    if options.data is None:
        raise UsageError("no scene given", hint="name a scene, or use --data ROOT")
    scenes, skipped = survey(options.data)
    for name, reason in skipped:
        if options.json_progress:
            sys.stdout.write(json.dumps({"event": "skipped", "scene": name, "reason": reason}) + "\n")
        else:
            sys.stderr.write(f"skipping {name}: {reason}\n")
    code = 0
    for scene in scenes:
        if options.list:
            dataset = scene.public.dataset if scene.public else "-"
            sys.stdout.write(f"{scene.name:12} {scene.layout:10} {dataset:22} {scene.folder}\n")
            continue
        scene_options = argparse.Namespace(**vars(options))
        scene_options.scene, scene_options.out = scene.name, options.out / scene.name
        status = _train_one(config_from(scene_options)).status
        code = max(code, exit_code_of(status))
        if status == "interrupted":
            break
    return code


def _train_one(config: TrainConfig) -> TrainingRecord:
    # OpenMP threads that spin while they wait starve each other where another process shares the cores; measured on
    # two busy cores: below 0.6 iterations a second spinning, 5 to 15 sleeping. Must be set before torch loads OpenMP.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from smoke_trainer.train import train  # torch is imported only for a valid command
    except (ImportError, OSError) as error:  # OSError: a shared library is missing or does not match
        raise PackageMissing(
            f"{sys.executable} cannot load the smoke trainer: {str(error).strip().partition(chr(10))[0][:300]}",
            "it needs torch, numpy and Pillow, as your splatting environment has them",
            f"use the Python of that environment, or run: {sys.executable} -m pip install torch numpy Pillow; "
            "`splatfix diagnose` finds why one that is installed does not load",
        ) from None
    record = train(config, show_progress(config.json_progress))
    if config.json_progress:
        end = {"event": "end", "status": record.status, "result": str(config.out / "result.json")}
        sys.stdout.write(json.dumps(end) + "\n")
    if record.error is not None:
        return record
    before = record.initial_heldout or record.heldout
    counts = record.gaussians
    sys.stderr.write(
        f"{record.scene}: {record.status}, {record.iterations} iterations, "
        f"held-out PSNR {before.psnr:.2f} -> {record.heldout.psnr:.2f} dB, "
        f"Gaussians {counts.initial} -> {counts.final}, results in {config.out}\n"
    )
    if record.status == "interrupted":
        sys.stderr.write(f"continue with --resume {config.out / 'checkpoint.pt'}\n")
    return record


if __name__ == "__main__":
    # end without a word where the reader has gone (`... | head`); Windows has no such signal
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
