"""What our CUDA kernels cost before a first launch: compiled at a first call, read back in every later process.

    python tests/benchmarks/bench_nvrtc.py [--arch 120] [--rounds 3]

Each number is that of one call in a process of its own, after `import torch`: NVRTC is found and loaded, and every file that
the call asks for compiled with an empty cache; then read from the cache; then from a drop-in that brought them along. The
limits are 5 s for a first call and 50 ms in later processes. No GPU is asked: loading the code into the driver comes on top,
and only a GPU tells how long that takes. Needs an NVRTC: torch's, or `pip install nvidia-cuda-nvrtc`.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import measuring

KERNELS = measuring.ROOT / "splatfix" / "kernels"
BLENDING = [["blending.cu", {"COLORS": 3, "EXTRAS": extras, "ABSOLUTE": 0}] for extras in (3, 0)]
CALLS: dict[str, list[list[object]]] = {
    "fused_ssim": [["ssim.cu", {}]],
    "distCUDA2": [["knn.cu", {}]],
    "a frame and its gradients": [["projection.cu", {}], ["binning.cu", {"KEY": "short"}], *BLENDING],
}
LIMITS = {"first call": 5.0, "later process": 0.05, "with a drop-in": 0.05}


def child(folder: str, arch: int, call: str) -> None:
    """In a fresh process: seconds until all code of a call is there, and whether nothing was compiled, as JSON."""
    sys.path.insert(0, folder)
    import nvrtc  # type: ignore[import-not-found]  # imports torch, as whoever calls has

    started = time.perf_counter()
    result = [nvrtc.compile_kernels(name, options, arch) for name, options in CALLS[call]]
    took = time.perf_counter() - started
    sys.stdout.write(json.dumps([took, all(item.cached for item in result)]))


def seconds(folder: Path, arch: int, call: str, cache: Path, *, cached: bool) -> float:
    argv = [sys.executable, __file__, "--child", str(folder), "--arch", str(arch), "--call", call]
    env = {**os.environ, "SPLATFIX_CACHE": str(cache)}
    took, was_cached = json.loads(measuring.run(argv, env=env).output)
    assert was_cached is cached, f"{call}: {'compiled' if cached else 'read from a cache'}"
    return float(took)


def main() -> None:
    parser = measuring.parser(__doc__, rounds=3)
    parser.add_argument("--arch", type=int, default=120)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--call", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, asked.arch, asked.call)
        return
    took: dict[str, dict[str, list[float]]] = {call: {kind: [] for kind in LIMITS} for call in CALLS}
    with tempfile.TemporaryDirectory() as scratch:
        plain, dropin = Path(scratch, "plain"), Path(scratch, "dropin")
        for folder in (plain, dropin):
            shutil.copytree(KERNELS, folder, ignore=shutil.ignore_patterns("__pycache__", "__init__.py"))
        expected = [[name, options, asked.arch] for call in CALLS.values() for name, options in call]
        argv = [sys.executable, str(dropin / "nvrtc.py"), str(dropin / "cuda"), json.dumps(expected)]
        made = measuring.run(argv)
        for number in range(asked.rounds):
            for call, kinds in took.items():
                cache = Path(scratch, f"{number}-{call}")
                kinds["first call"].append(seconds(plain, asked.arch, call, cache, cached=False))
                kinds["later process"].append(seconds(plain, asked.arch, call, cache, cached=True))
                kinds["with a drop-in"].append(seconds(dropin, asked.arch, call, cache / "none", cached=True))
    print(f"sm_{asked.arch}, NVRTC {json.loads(made.output)['nvrtc']}, median of {asked.rounds}")
    for call, kinds in took.items():
        for kind, all_of_them in kinds.items():
            median = statistics.median(all_of_them)
            print(f"{call:<26} {kind:<15} {1e3 * median:8.1f} ms   {median / LIMITS[kind]:5.2f} of the limit")


if __name__ == "__main__":
    main()
