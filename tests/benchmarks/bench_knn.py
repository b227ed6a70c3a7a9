"""Mean squared distance to the 3 nearest neighbours: our engines against scipy's cKDTree in one run.

    python tests/benchmarks/bench_knn.py [--count 1000000] [--kinds uniform clustered] [--points FILE.npz] [--json FILE]

Times include building the tree. Every result is compared with scipy's, computed in float64. `--memory` runs the torch engine
once and tells its peak beyond the points (Linux).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from splatfix.kernels.knn import available_engines, distCUDA2


def clustered(count: int, seed: int = 0) -> np.ndarray:
    """300 flat clusters over two decades of size with log-normal weights, and 3 % far stragglers, as SfM leaves them."""
    rng = np.random.default_rng(seed)
    weights = rng.lognormal(0, 1, 300)
    which = rng.choice(300, count, p=weights / weights.sum())
    flat = rng.uniform(0.05, 1, (300, 3))
    flat[np.arange(300), rng.integers(0, 3, 300)] *= 0.05
    size = (10 ** rng.uniform(-2.5, -0.5, (300, 1))) * flat
    points = rng.normal(size=(300, 3))[which] + rng.normal(size=(count, 3)) * size[which]
    straggler = rng.random(count) < 0.03
    points[straggler] = rng.normal(size=(int(straggler.sum()), 3)) * 30
    return points.astype(np.float32)


def cloud(kind: str, count: int) -> np.ndarray:
    if kind == "clustered":
        return clustered(count)
    points = np.random.default_rng(0).random((count, 3), dtype=np.float32)
    if kind == "collinear":
        points = points[:, :1] * np.array([[1.0, 2.0, 3.0]], dtype=np.float32)
    if kind == "far":
        points += np.float32(1e5)
    if kind == "duplicated":
        points = points[np.random.default_rng(1).integers(0, count // 4, count)]
    return points


def by_scipy(points: np.ndarray) -> np.ndarray:
    from scipy.spatial import cKDTree

    distances, _ = cKDTree(points).query(points, k=4, workers=-1)
    return (distances[:, 1:] ** 2).mean(1)


def compare(name: str, points: np.ndarray, repeats: int, engines: list[str]) -> dict[str, object]:
    tensor = torch.from_numpy(points)
    times: dict[str, float] = dict.fromkeys(["scipy cKDTree, workers=-1", *engines], float("inf"))
    errors: dict[str, float] = {}
    for _ in range(repeats):
        start = time.perf_counter()
        expected = by_scipy(points)
        times["scipy cKDTree, workers=-1"] = min(
            times["scipy cKDTree, workers=-1"], time.perf_counter() - start
        )
        for engine in engines:
            start = time.perf_counter()
            found = distCUDA2(tensor, engine=engine).double().numpy()
            times[engine] = min(times[engine], time.perf_counter() - start)
            errors[engine] = float((np.abs(found - expected) / np.maximum(expected, 1e-30)).max())
    peer = times["scipy cKDTree, workers=-1"]
    print(f"\n{name}, {len(points):,} points (fastest of {repeats})")
    for engine, seconds in times.items():
        label = engine if engine.startswith("scipy c") else f"distCUDA2, engine {engine}"
        tail = f"  worst relative error {errors[engine]:.1e}" if engine in errors else ""
        print(f"  {label:32}{seconds:8.2f} s   {seconds / peer:5.2f} x scipy{tail}")
    return {"cloud": name, "count": len(points), "seconds": times, "errors": errors}


def peak_memory(kind: str, count: int) -> None:
    """Run the torch engine alone; print what it held at its peak beyond the points, and check a few points by brute force."""

    def status(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field))

    points = torch.from_numpy(cloud(kind, count))
    distCUDA2(points[:1000], engine="torch")  # loads code and thread pools, which are not counted
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before, start = status("VmRSS"), time.perf_counter()
    found = distCUDA2(points, engine="torch")
    seconds, peak = time.perf_counter() - start, status("VmHWM") - before
    worst = 0.0
    for i in range(0, count, max(1, count // 16)):
        squared = (points.double() - points[i].double()).square().sum(1)
        true = float(squared.topk(4, largest=False)[0][1:].mean())
        worst = max(worst, abs(float(found[i]) - true) / max(true, 1e-30))
    print(
        f"torch engine, {count:,} {kind}: {seconds:.1f} s, peak {peak / 1024:.0f} MiB, "
        f"worst relative error of 16 brute-force checks {worst:.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--kinds", nargs="+", default=["uniform", "clustered"])
    parser.add_argument("--points", type=Path, help='an .npz with an array "means3d" [N, 3]')
    parser.add_argument("--engines", nargs="+", default=list(available_engines()))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.memory:
        for kind in args.kinds:
            peak_memory(kind, args.count)
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    rows = [compare(kind, cloud(kind, args.count), args.repeats, args.engines) for kind in args.kinds]
    if args.points:
        rows.append(
            compare(
                args.points.stem,
                np.load(args.points)["means3d"].astype(np.float32),
                args.repeats,
                args.engines,
            )
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
