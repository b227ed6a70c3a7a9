"""Mean squared distance to the 3 nearest neighbours: our engines against scipy's cKDTree in one run.

    python tests/benchmarks/bench_knn.py [--count 1000000] [--kinds uniform clustered] [--threads 1]

Seconds are of processors, and a ratio is the median of what an engine and scipy took in turns: a busy machine disturbs both
little; of several threads those that wait by spinning count, too. Times include building the tree. Every result is compared with
scipy's, computed in float64. `--memory` runs the fastest engine, scipy's and the torch engine once each, in fresh processes, and
tells the peak of resident memory beyond the points, the result included (Linux); 2000 random points are compared with scipy on
the points in float64.
"""

import argparse
import json
import os
import statistics
import sys
import time
from operator import truediv

import measuring
import numpy as np
import torch
from measuring import PeakMemory, conditions, keep

from splatfix.kernels.knn import DEFAULT_BUDGET_BYTES, available_engines, distCUDA2

SAMPLE = 2000


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
    return np.random.default_rng(0).random((count, 3), dtype=np.float32)


def by_scipy(points: np.ndarray) -> np.ndarray:
    from scipy.spatial import cKDTree

    distances, _ = cKDTree(points).query(points, k=4, workers=torch.get_num_threads())
    return (distances[:, 1:] ** 2).mean(1)


def compare(name: str, points: np.ndarray, repeats: int, engines: list[str]) -> dict[str, object]:
    tensor = torch.from_numpy(points)
    peer: list[float] = []
    times: dict[str, list[float]] = {engine: [] for engine in engines}
    errors: dict[str, float] = {}
    for _ in range(repeats):
        start = time.process_time()
        expected = by_scipy(points)
        peer.append(time.process_time() - start)
        for engine in engines:
            start = time.process_time()
            result = distCUDA2(tensor, engine=engine).double().numpy()
            times[engine].append(time.process_time() - start)
            errors[engine] = float((np.abs(result - expected) / np.maximum(expected, 1e-30)).max())
    print(
        f"\n{name}, {len(points):,} points: scipy's cKDTree {min(peer):.2f} s of processors (least of {repeats})"
    )
    ratios = {engine: statistics.median(map(truediv, taken, peer)) for engine, taken in times.items()}
    for engine, taken in times.items():
        print(
            f"  engine {engine:12}{min(taken):8.2f} s   {ratios[engine]:5.2f} x scipy  worst relative error {errors[engine]:.1e}"
        )
    return {
        "cloud": name,
        "count": len(points),
        "threads": torch.get_num_threads(),
        "processor_seconds": {"scipy": peer, **times},
        "of_scipy": ratios,
        "errors": errors,
    }


def peak_memory(kind: str, count: int, engine: str) -> dict[str, object]:
    """Run one engine alone: seconds, peak MiB beyond the points, and the worst error of a random sample."""
    from scipy.spatial import cKDTree

    points = torch.from_numpy(cloud(kind, count))
    distCUDA2(points[:1000], engine=engine)  # loads code and thread pools, which are not counted
    with PeakMemory() as peak:
        start = time.perf_counter()
        result = distCUDA2(points, engine=engine)
        seconds = time.perf_counter() - start
    exact = points.double().numpy()
    sample = np.random.default_rng(7).choice(count, min(SAMPLE, count), replace=False)
    distances, _ = cKDTree(exact, balanced_tree=False).query(exact[sample], k=4, workers=-1)
    true = (distances[:, 1:] ** 2).mean(1)
    errors = np.abs(result[sample].double().numpy() - true) / np.maximum(true, 1e-30)
    return {
        "cloud": kind,
        "count": count,
        "engine": engine,
        "seconds": round(seconds, 1),
        "peak_mib_beyond_points": round(peak.bytes / 2**20),
        "of_which_result_mib": round(4 * count / 2**20),
        "sample": len(sample),
        "worst_relative_error": float(errors.max()),
        "load": os.getloadavg()[0],
    }


def memory_table(kinds: list[str], count: int, engines: list[str]) -> dict[str, object]:
    rows = []
    for kind in kinds:
        for engine in engines:
            command = [sys.executable, __file__, "--count", str(count), "--memory-of", kind, engine]
            row = json.loads(measuring.run(command).output.splitlines()[-1])
            print(
                f"{count:,} {kind}, engine {engine}: {row['seconds']} s, peak {row['peak_mib_beyond_points']} MiB beyond the "
                f"points, worst relative error of {row['sample']} points {row['worst_relative_error']:.1e}"
            )
            rows.append(row)
    return {
        "what": "distCUDA2 on many points: peak of resident memory beyond the points (result included) and exactness",
        "method": "one fresh process for each row; peak is VmHWM (reset before the call) less VmRSS before the call; "
        "the sample is compared with scipy's cKDTree on the same points in float64",
        **conditions("torch", "numpy", "scipy", *engines),
        "threads": torch.get_num_threads(),
        "budget_mib": DEFAULT_BUDGET_BYTES // 2**20,
        "rows": rows,
    }


def main() -> None:
    parser = measuring.parser(__doc__, rounds=2)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--kinds", nargs="+", default=["uniform", "clustered"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--engines", nargs="+", default=list(available_engines()))
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--memory-of", nargs=2, metavar=("KIND", "ENGINE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        print(json.dumps(peak_memory(args.memory_of[0], args.count, args.memory_of[1])))
        return
    if args.memory:
        engines = list(
            dict.fromkeys([args.engines[0], *(e for e in args.engines if e in ("scipy", "torch"))])
        )
        keep(memory_table(args.kinds, args.count, engines), args.json)
        return
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    rows = [compare(kind, cloud(kind, args.count), args.rounds, args.engines) for kind in args.kinds]
    keep(rows, args.json)


if __name__ == "__main__":
    main()
