"""How gsplat's ``simple_trainer.py`` and nerfstudio's splatfacto are run on the CPU, unmodified, with splatfix's drop-in.

What a trainer asks of CUDA lands on the CPU, as in ``splatfix rehearse``. Both of ``tools.gsplat_rehearsals`` and
``tools.gsplat_quality`` run them so, with the environments and checkouts that ``make gsplat`` names.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from splatfix.certify.stacks.child import stage_inside
from splatfix.certify.stacks.observed import read_observed
from splatfix.certify.stacks.subject import Gaps
from splatfix.certify.stacks.threads import Threads
from splatfix.core.data import dataclass
from splatfix.core.files import make_folder
from splatfix.core.lenient import object_in
from splatfix.core.runner import ProcessRunner

CAP = 4000
"""Gaussians of MCMC."""
_TIMEOUT = 3 * 3600.0


@dataclass(frozen=True)
class Schedule:
    """gsplat's schedule of 30,000 steps as far as it matters in a short run: refined early and often."""

    steps: int
    start: int
    every: int
    stop: int
    degree_every: int
    """Steps until one more degree of harmonics is used."""


def arguments(description: str | None, out: str) -> argparse.ArgumentParser:
    """What each of the tools takes.

    Args:
        out: the folder of build/ for what is trained.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", type=Path)
    parser.add_argument("environments", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build") / out)
    return parser


def observed_run(python: Path, argv: list[str], root: Path, folder: Path, threads: int = 1) -> dict[str, Any]:
    """Run a trainer as ``splatfix rehearse`` runs one; what its observer saw. Ends the tool where the trainer failed.

    Args:
        root: where its own code lies.
        folder: for all that it writes.
    """
    observed = make_folder(folder / "observed")
    subject = SimpleNamespace(
        gaps=Gaps((), (), ()),
        source=root,
        rehearsed=True,
        extensions=("gsplat",),
        needed=(),
        dropins=None,
        threads=Threads(threads, ""),
    )
    variables = stage_inside(make_folder(folder / "inside"), cast("Any", subject), observed, (folder,))
    # no compiler is found by a trainer that looks for one
    variables["PATH"] = os.pathsep.join((str(folder / "inside" / "bin"), str(python.parent)))
    variables["TORCHDYNAMO_DISABLE"] = "1"
    log = folder / "trainer.log"
    done = ProcessRunner().run([str(python), *argv], timeout=_TIMEOUT, env=variables, cwd=folder, log=log)
    if not done.ok:
        sys.exit(f"{' '.join(argv)}: {done.why()}; see {log}")
    return read_observed(observed, Path(argv[0]).name)


def simple_trainer_options(
    kind: str, scene: Path, divisor: int, results: Path, schedule: Schedule
) -> list[str]:
    """The words after ``simple_trainer.py``: ``default`` or ``mcmc``, and its options."""
    options: dict[str, object] = {
        "data_dir": scene,
        "data_factor": divisor,
        "result_dir": results,
        "max_steps": schedule.steps,
        "eval_steps": schedule.steps,
        "save_steps": schedule.steps,
        "sh_degree_interval": schedule.degree_every,
        "strategy.refine-start-iter": schedule.start,
        "strategy.refine-every": schedule.every,
        "strategy.refine-stop-iter": schedule.stop,
    }
    if kind == "mcmc":
        options["strategy.cap-max"] = CAP
    return [kind, *_as_words(options), "--disable_viewer", "--disable_video"]


def simple_trainer_stats(results: Path, schedule: Schedule) -> dict[str, Any]:
    """What ``simple_trainer.py`` measured on the held-out views."""
    return object_in(results / "stats" / f"val_step{schedule.steps - 1:04d}.json")


def train_splatfacto(
    python: Path,
    scene: Path,
    divisor: int,
    folder: Path,
    schedule: Schedule,
    more: Mapping[str, object] | None = None,
    threads: int = 1,
) -> tuple[list[str], dict[str, Any]]:
    """Train by ``ns-train``; its words, and what the observer saw.

    Args:
        more: further options of ``ns-train splatfacto``.
    """
    model = {
        "warmup-length": schedule.start,
        "refine-every": schedule.every,
        "stop-split-at": schedule.stop,
        "sh-degree-interval": schedule.degree_every,
        "num-downscales": 0,
        "background-color": "black",
        "cull-alpha-thresh": 0.005,
    }
    options: dict[str, object] = {
        "max-num-iterations": schedule.steps,
        "vis": "tensorboard",
        "output-dir": folder / "outputs",
        "steps-per-eval-all-images": 10 * schedule.steps,
        **{f"pipeline.model.{name}": value for name, value in model.items()},
        **(more or {}),
    }
    data: dict[str, object] = {
        "data": scene,
        "colmap-path": "sparse/0",
        "downscale-factor": divisor,
        "eval-mode": "interval",
        "eval-interval": 8,
    }
    argv = [str(python.parent / "ns-train"), "splatfacto", *_as_words(options), "colmap", *_as_words(data)]
    return argv[1:], observed_run(python, argv, _nerfstudio(python), folder, threads)


def evaluate_splatfacto(python: Path, trained: Path, folder: Path, threads: int = 1) -> dict[str, Any]:
    """What ``ns-eval`` measures on the held-out views with the checkpoint that a training left in ``trained``."""
    (configuration,) = (trained / "outputs").rglob("config.yml")
    answer = make_folder(folder) / "eval.json"
    given = _as_words({"load-config": configuration, "output-path": answer})
    observed_run(python, [str(python.parent / "ns-eval"), *given], _nerfstudio(python), folder, threads)
    results: dict[str, Any] = object_in(answer)["results"]
    return results


def _nerfstudio(python: Path) -> Path:
    return next((python.parent.parent / "lib").glob("python3*/site-packages/nerfstudio"))


def _as_words(options: dict[str, object]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]
