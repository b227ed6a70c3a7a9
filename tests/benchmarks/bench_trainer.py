"""Trains a scene on the CPU and prints steps per second, held-out PSNR along the way, and where the time went.

    python tests/benchmarks/bench_trainer.py SCENE [--iterations 500] [--resolution 376] [--hold-out NAME] [--json FILE]

With `--peer-its` and `--peer-psnr` (what another trainer reached on the same scene, resolution, steps and machine) it
prints the ratios. `--fixed` switches densification off and keeps the reference's learning rates for runs of this
length, which is what a peer that only densifies after 500 steps does.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from smoke_trainer import train as training
from smoke_trainer.config import NEVER, TrainConfig, scaled_to
from smoke_trainer.data.load import load_scene


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scene")
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--resolution", type=int, default=376)
    parser.add_argument("--hold-out", metavar="NAME", help="hold out this one view instead of every eighth")
    parser.add_argument("--fixed", action="store_true", help="no densification")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--peer-its", type=float)
    parser.add_argument("--peer-psnr", type=float)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    if options.hold_out:
        _hold_out_one(options.hold_out)
    with tempfile.TemporaryDirectory() as folder:
        report = run(options, Path(folder))
    print(json.dumps(report, indent=1))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if report["status"] == "ok" else 1


def _hold_out_one(name: str) -> None:
    """Let training see a split with exactly one held-out view."""

    def load(*arguments: Any) -> Any:
        scene = load_scene(*arguments)
        views = scene.train + scene.test
        test = tuple(view for view in views if Path(view.name).stem.lower() == Path(name).stem.lower())
        if not test:
            raise SystemExit(f"{name} is none of {', '.join(sorted(view.name for view in views))}")
        return dataclasses.replace(scene, train=tuple(v for v in views if v not in test), test=test)

    training.load_scene = load


def run(options: argparse.Namespace, out: Path) -> dict[str, Any]:
    config = TrainConfig(
        options.scene,
        options.iterations,
        out,
        resolution=options.resolution,
        seed=options.seed,
        evaluate_every=max(1, options.iterations // 5),
    )
    config = scaled_to(config)
    if options.fixed:
        config = dataclasses.replace(
            config, densify=dataclasses.replace(config.densify, first=NEVER, opacity_reset_every=NEVER)
        )
    curve: dict[int, float] = {}

    def note(state: dict[str, Any]) -> None:
        if "heldout_psnr" in state:
            curve[state["iteration"]] = round(state["heldout_psnr"], 2)
            print(f"{state['iteration']:6d}  {state['heldout_psnr']:.2f} dB", file=sys.stderr)

    result = training.train(config, note)
    document = result.document
    if "error" in document:
        return {"status": result.status, "error": document["error"]}
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    report = {
        "status": result.status,
        "scene": document["scene"],
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
        "rss_gb": round(document["peaks"]["rss"] / 1e9, 2),
    }
    if options.peer_its:
        report["times_the_peers_speed"] = round(document["iterations_per_second"] / options.peer_its, 2)
    if options.peer_psnr:
        report["db_over_the_peer"] = round(document["heldout"]["psnr"] - options.peer_psnr, 2)
    return report


if __name__ == "__main__":
    sys.exit(main())
