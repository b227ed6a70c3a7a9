"""`python -m smoke_trainer SCENE --iterations N ...`: the trainer on the command line.

`python -m smoke_trainer --data ROOT` trains every scene below ROOT, or the one that ROOT is: the public ones (garden,
truck, ...) at their usual resolution and budget, others as they are. `python -m smoke_trainer.data ROOT` only lists them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from smoke_trainer.config import PAPER_ITERATIONS, TrainConfig, scaled_to
from smoke_trainer.errors import EXIT_OK, EXIT_UNKNOWN, SmokeTrainerError, UsageError
from smoke_trainer.needs import require
from smoke_trainer.pipes import unless_hung_up
from smoke_trainer.progress import progress_shown

if TYPE_CHECKING:
    from smoke_trainer.report import Result


def parser() -> argparse.ArgumentParser:
    """All options; defaults are the paper's."""
    p = argparse.ArgumentParser(
        prog="python -m smoke_trainer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument(
        "scene",
        nargs="?",
        help="folder of a COLMAP, Blender or nerfstudio scene, or the name of a bundled sample; "
        "left out with --data: every scene that is there",
    )
    p.add_argument(
        "--preset", choices=("quick", "standard"), help="iterations and resolution measured for the samples"
    )
    p.add_argument(
        "--data",
        type=Path,
        metavar="ROOT",
        help="folder of scenes, the public ones (garden, truck, ...) or others",
    )
    p.add_argument("--iterations", type=int)
    p.add_argument(
        "--out", type=Path, default=Path("smoke-output"), help="folder for everything that is written"
    )
    p.add_argument("--renderer", default="torch", help="torch, gsplat or inria (default: torch)")
    p.add_argument("--ssim", default="kernels", help="kernels or fused-ssim")
    p.add_argument("--knn", default="kernels", help="kernels or simple-knn")
    p.add_argument("--device", default="cpu", help="cpu or cuda")
    p.add_argument("--data-device", default="cpu", help="where decoded images wait (default: cpu)")
    p.add_argument("--resolution", type=int, help="1, 2, 4, 8: divisor; larger: width; -1: smallest prepared")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument(
        "--strategy", help="default, mcmc or budget (default: default; budget for a public scene of --data)"
    )
    p.add_argument("--cap", type=int, help="mcmc: largest number of Gaussians")
    p.add_argument(
        "--budget", type=float, help="budget: final number, or a multiple of the initial one below 100"
    )
    p.add_argument("--background", choices=("black", "white", "random"))
    p.add_argument("--sh-degree", type=int, choices=range(4), default=3)
    p.add_argument("--antialiasing", action="store_true")
    p.add_argument("--cache-mb", type=int, default=2048, help="bound of the image cache")
    p.add_argument("--checkpoint-every", type=int, default=0, metavar="N")
    p.add_argument("--resume", type=Path, metavar="CHECKPOINT")
    p.add_argument("--evaluate-every", type=int, default=0, metavar="N")
    p.add_argument("--tensorboard", action="store_true")
    p.add_argument("--census", action="store_true", help="list the largest live tensors in result.json")
    p.add_argument("--json-progress", action="store_true", help="one JSON object per line on standard output")
    return p


def config_from(options: argparse.Namespace) -> TrainConfig:
    """The run that the options ask for: preset first, then what was said explicitly, then the schedule."""
    from smoke_trainer.data.find import locate
    from smoke_trainer.data.public import BUDGET_DENSIFY_EVERY
    from smoke_trainer.presets import preset_for

    given: Dict[str, Any] = {
        name: getattr(options, name)
        for name in (
            "scene",
            "out",
            "renderer",
            "ssim",
            "knn",
            "device",
            "data_device",
            "seed",
            "sh_degree",
            "antialiasing",
            "cache_mb",
            "checkpoint_every",
            "resume",
            "evaluate_every",
            "tensorboard",
            "census",
            "json_progress",
        )
    }
    usual, public = -1, None
    if options.data is not None:
        found = locate(options.scene, options.data)
        given["scene"], public = str(found.folder), found.public
        usual = public.divisor if public else usual
    preset = preset_for(Path(options.scene).name, options.preset) if options.preset else None
    iterations = options.iterations or (preset.iterations if preset else PAPER_ITERATIONS)
    resolution = options.resolution or (preset.resolution if preset else usual)
    background = options.background or (preset.background if preset else "black")
    # A floor was measured for exactly one length and size; with others it would be meaningless.
    as_measured = preset is not None and (iterations, resolution) == (preset.iterations, preset.resolution)
    floor = preset.psnr_floor if preset and as_measured else None
    config = TrainConfig(
        iterations=iterations,
        resolution=resolution,
        background=background,
        strategy=options.strategy or ("budget" if public else "default"),
        preset=options.preset,
        psnr_floor=floor,
        **given,
    )
    densify = config.densify
    if public is not None and config.strategy == "budget":
        densify = dataclasses.replace(densify, budget=public.multiplier, every=BUDGET_DENSIFY_EVERY)
    if options.cap is not None:
        densify = dataclasses.replace(densify, max_gaussians=options.cap)
    if options.budget is not None:
        densify = dataclasses.replace(densify, budget=options.budget)
    return scaled_to(dataclasses.replace(config, densify=densify))


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command and return its exit code: 0 trained, 1 failed, 2 wrong usage, 3 could not be determined."""
    options = parser().parse_args(arguments)
    try:
        _check_numbers(options)
        if options.scene is None:
            return _train_data(options)
        return _train_one(config_from(options)).exit_code
    except SmokeTrainerError as error:
        sys.stderr.write(f"error[{error.code}]: {error}\n")
        return error.exit_code
    except KeyboardInterrupt as stop:
        kept = f"go on with --resume {stop}" if stop.args else "without a checkpoint of this moment"
        sys.stderr.write(f"stopped at once, {kept}\n")
        return EXIT_UNKNOWN


def _check_numbers(options: argparse.Namespace) -> None:
    """Refuse numbers that mean nothing before anything is loaded."""
    for name, smallest in (
        ("iterations", 1),
        ("cap", 1),
        ("cache_mb", 0),
        ("checkpoint_every", 0),
        ("evaluate_every", 0),
    ):
        value = getattr(options, name)
        if value is not None and value < smallest:
            raise UsageError(f"--{name.replace('_', '-')} must be at least {smallest}")
    if options.resolution is not None and (options.resolution < -1 or options.resolution == 0):
        raise UsageError("--resolution must be a divisor (1, 2, 4, 8), a width in pixels, or -1")
    if options.budget is not None and not 0 < options.budget < math.inf:
        raise UsageError("--budget must be above 0: a number of Gaussians, or a multiple of the initial one")


def _train_data(options: argparse.Namespace) -> int:
    """Train every scene that is there, each in its own folder of --out; returns the worst of their codes."""
    from smoke_trainer.data.find import survey

    if options.data is None:
        raise UsageError(
            "no scene is given", remedy="name a scene, or give --data ROOT for those of a folder"
        )
    found = survey(options.data)
    for name, reason in found.skipped:
        _tell_skipped(name, reason, options.json_progress)
    code = EXIT_OK
    for scene in found.scenes:
        one = argparse.Namespace(**dict(vars(options), scene=scene.name, out=options.out / scene.name))
        result = _train_one(config_from(one))
        code = max(code, result.exit_code)
        if result.status == "interrupted":
            break
    return code


def _tell_skipped(name: str, reason: str, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"event": "skipped", "scene": name, "reason": reason}) + "\n")
    else:
        sys.stderr.write(f"{name}: skipped: {reason}\n")


def _train_one(config: TrainConfig) -> Result:
    # OpenMP threads that spin while they wait starve each other where another process shares the cores; measured on
    # two busy cores: below 0.6 iterations a second spinning, 5 to 15 sleeping. Must be said before torch loads OpenMP.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    require()
    from smoke_trainer.train import train  # torch is imported only for a command that makes sense

    with progress_shown(config.json_progress) as show:
        result = train(config, show)
    _tell(config, result.status, result.document)
    return result


def _tell(config: TrainConfig, status: str, document: Dict[str, Any]) -> None:
    """The last words of a run."""
    if config.json_progress:
        sys.stdout.write(
            json.dumps({"event": "end", "status": status, "result": str(config.out / "result.json")}) + "\n"
        )
    if "error" in document:
        error = document["error"]
        sys.stderr.write(f"error[{error['code']}]: {error['happened']}\n")
        for label, key in (("meaning", "meaning"), ("what to do", "remedy")):
            if error[key]:
                sys.stderr.write(f"  {label}: {error[key]}\n")
        return
    quality, before = document["heldout"], document["initial_heldout"]
    counts = document["gaussians"]
    sys.stderr.write(
        f"{document['scene']}: {status}, {document['iterations']} iterations, "
        f"held-out PSNR {before['psnr']:.2f} -> {quality['psnr']:.2f} dB, "
        f"Gaussians {counts['initial']} -> {counts['final']}, results in {config.out}\n"
    )
    if status == "interrupted":
        sys.stderr.write(
            f"go on where it stopped: the same command with --resume {config.out / 'checkpoint.pt'}\n"
        )


if __name__ == "__main__":
    sys.exit(unless_hung_up(main))
