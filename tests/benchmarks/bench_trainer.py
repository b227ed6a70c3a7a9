"""The trainer on the CPU beside OpenSplat in the same run, where its binary is given.

    python tests/benchmarks/bench_trainer.py SCENE [--iterations 500] [--downscale 8] [--hold-out NAME]
                                             [--opensplat BINARY] [--fixed] [--json FILE]

Both trainers see the same photos at the same size (the stated one divided by --downscale), the same points, the same
held-out view and the same number of steps; held-out PSNR is computed here from both pictures. OpenSplat's steps per second
are taken from the times between its steps, without those in which it drew the held-out view, so that reading photos and
evaluation are in neither figure.
`--fixed` switches densification off, takes the learning rates of 2023 and draws on OpenSplat's background colour: that
is what OpenSplat does at its defaults in the first 500 steps, and where no Gaussian is (a sky), the background is seen.
A single number on a busy machine says little; the ratios are the result.
"""

import argparse
import dataclasses
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measuring
from measuring import conditions, keep

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from PIL import Image

from smoke_trainer import train as training
from smoke_trainer.config import NEVER, TrainConfig, scaled_to
from smoke_trainer.data.images import ImageStore
from smoke_trainer.data.load import load_scene
from smoke_trainer.data.scene import Scene, View
from smoke_trainer.metrics import psnr
from smoke_trainer.record import ProgressState
from smoke_trainer.report import hardware

OPENSPLAT_BACKGROUND = (0.6130, 0.0101, 0.3984)  # model.hpp, "Nerf Studio default"
STEP = re.compile(r"^Step (\d+): ([0-9.naif+-]+)")


def main() -> int:
    parser = measuring.parser(__doc__, rounds=1)
    parser.add_argument("scene", help="folder of a COLMAP scene (OpenSplat reads no other)")
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--downscale", type=float, default=8.0, help="of the stated size; need not be whole")
    parser.add_argument(
        "--hold-out", metavar="NAME", help="hold out this one view (default: the first by name)"
    )
    parser.add_argument("--fixed", action="store_true", help="no densification")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--opensplat", type=Path, metavar="BINARY")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    stated = load_scene(options.scene, 1).test[0].source.width
    options.width = round(stated / options.downscale)
    scene = hold_out_one(load_scene(options.scene, options.width), options.hold_out)
    training.load_scene = lambda *_: scene  # type: ignore[assignment]
    if options.fixed:
        training.Run.plain_background = lambda _: torch.tensor(OPENSPLAT_BACKGROUND)  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        report = compare(options, scene, Path(folder))
    print(json.dumps(report, indent=1))
    keep(report, options.json)
    return 0 if report["ours"]["status"] == "ok" else 1


def hold_out_one(scene: Scene, name: str | None) -> Scene:
    """The scene with exactly one held-out view."""
    views = sorted(scene.train + scene.test, key=lambda view: view.name)
    expected = Path(name or views[0].name).stem.lower()
    test = tuple(view for view in views if Path(view.name).stem.lower() == expected)
    if not test:
        raise SystemExit(f"{name} is none of {', '.join(view.name for view in views)}")
    return dataclasses.replace(scene, train=tuple(view for view in views if view not in test), test=test)


def compare(options: argparse.Namespace, scene: Scene, folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = {
        **conditions("torch"),
        "command": " ".join(["python tests/benchmarks/bench_trainer.py", *shown(sys.argv[1:])]),
        "processor": hardware(torch.device("cpu")).cpu,
        "threads": torch.get_num_threads(),
        "scene": scene.name,
        "held_out": scene.test[0].name,
        "train_views": len(scene.train),
        "points": len(scene.points.xyz),
    }
    report["ours"] = ours(options, folder / "ours")
    if options.opensplat:
        mine = report["ours"]
        theirs = report["opensplat"] = opensplat(options, scene.test[0], folder)
        if theirs.get("iterations_per_second"):
            ratio = mine["iterations_per_second"] / theirs["iterations_per_second"]
            report["times_the_speed_of_opensplat"] = round(ratio, 2)
            if mine["iterations"] == theirs["iterations"]:
                report["db_over_opensplat"] = round(mine["psnr"] - theirs["psnr"], 2)
    report["load_at_end"] = os.getloadavg()[0]
    return report


def shown(arguments: list[str]) -> list[str]:
    """The arguments without the folders of this machine."""
    return [Path(word).name if "/" in word else word for word in arguments]


def configuration(options: argparse.Namespace, out: Path) -> TrainConfig:
    config = TrainConfig(
        options.scene,
        options.iterations,
        out,
        resolution=options.width,
        seed=options.seed,
        evaluate_every=max(1, options.iterations // 5),
    )
    if not options.fixed:
        return scaled_to(config)
    return dataclasses.replace(
        config,
        densify=dataclasses.replace(config.densify, refine_start_iter=NEVER, reset_every=NEVER),
        lrs=dataclasses.replace(config.lrs, opacity=0.05),
    )


def ours(options: argparse.Namespace, out: Path) -> dict[str, Any]:
    curve: dict[int, float] = {}

    def note(state: ProgressState) -> None:
        if state.heldout_psnr is not None:
            curve[state.iteration] = round(state.heldout_psnr, 2)
            print(f"{state.iteration:6d}  {state.heldout_psnr:.2f} dB", file=sys.stderr)

    result = training.train(configuration(options, out), note)
    document = result.document
    if "error" in document:
        return {"status": result.status, "error": document["error"]}
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {
        "status": result.status,
        "resolution": document["resolution"],
        "iterations": document["iterations"],
        "gaussians": document["gaussians"],
        "iterations_per_second": round(document["iterations_per_second"], 3),
        "median_ms": {
            name: round(statistics.median(row["ms"][name] for row in rows), 2) for name in rows[0]["ms"]
        },
        "psnr_at": {0: round(document["initial_heldout"]["psnr"], 2), **curve},
        "psnr": round(document["heldout"]["psnr"], 2),
        "ssim": round(document["heldout"]["ssim"], 4),
        "rss_gb": round(document["memory"]["rss"] / 1e9, 2),
    }


def opensplat(options: argparse.Namespace, view: View, folder: Path) -> dict[str, Any]:
    renders = folder / "opensplat"
    argv = [
        str(options.opensplat),
        options.scene,
        "-n",
        f"{options.iterations}",
        "-d",
        f"{options.downscale:g}",
    ]
    argv += ["--num-downscales", "0", "--cpu", "--val", "--val-image", Path(view.name).name]
    argv += ["--val-render", str(renders), "-o", str(folder / "opensplat.ply")]
    times: dict[int, float] = {}
    tail: list[str] = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail = [*tail[-20:], line.rstrip()]
            if step := STEP.match(line):
                times[int(step[1])] = time.perf_counter()
    if process.returncode or len(times) < 2:
        return {"status": f"ended with {process.returncode}", "last_words": tail}
    # It draws the held-out view after every tenth step; ours does not count evaluation either.
    steps = [times[step + 1] - times[step] for step in times if step + 1 in times and step % 10]
    truth = ImageStore(torch.device("cpu"), torch.device("cpu")).get(view).color
    curve = {int(path.stem): round(psnr(drawn(path, truth), truth), 2) for path in renders.glob("*.png")}
    curve = dict(sorted(curve.items()))
    return {
        "version": measuring.run([argv[0], "--version"]).output.strip(),
        "iterations": max(times),
        "iterations_per_second": round(len(steps) / sum(steps), 3),
        "psnr_at": {
            step: value for step, value in curve.items() if step % max(10, options.iterations // 5) == 0
        },
        "psnr": curve[max(curve)],
    }


def drawn(path: Path, truth: torch.Tensor) -> torch.Tensor:
    """A picture of OpenSplat's as a tensor like `truth`; one row or column more or less is cut, not resampled."""
    with Image.open(path) as image:
        pixels = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).float() / 255.0
    height, width = truth.shape[1:]
    if abs(pixels.shape[1] - height) > 1 or abs(pixels.shape[2] - width) > 1:
        raise SystemExit(f"OpenSplat drew {pixels.shape[2]}x{pixels.shape[1]}, the photo is {width}x{height}")
    return torch.nn.functional.pad(
        pixels, (0, width - pixels.shape[2], 0, height - pixels.shape[1]), mode="replicate"
    )


if __name__ == "__main__":
    sys.exit(main())
