"""Scanning every library of a CUDA torch installation: the binary reader against `cuobjdump --list-elf`.

    python tests/benchmarks/bench_binaries.py [--packages SITE_PACKAGES] [--cuobjdump PATH] [--json FILE] [--rounds N]

Both read the same files in the same run, in turns, after one unmeasured reading by each that warms the page cache.
The reader's time is that of a fresh `read_binary` per file with device code and links, in this one process;
cuobjdump's is one child process per file, whose bare start (`cuobjdump --version`) is measured and told apart.
Without --packages the environment of SPLATFIX_NATIVE_PYTHON is scanned, else the running one.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import measuring
from measuring import keep

from splatfix.binaries import EntryKind, find_binaries, read_binary

TARGET = 20.0


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser(__doc__, rounds=3)
    parser.add_argument("--packages", type=Path, help="the site-packages folder with torch and nvidia in it")
    parser.add_argument("--cuobjdump", help="the program to compare with")
    return parser.parse_args(arguments)


def default_packages() -> Path:
    python = os.environ.get("SPLATFIX_NATIVE_PYTHON")
    if not python:
        return Path(sysconfig.get_path("purelib"))
    command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(measuring.run(command).output.strip())


def find_cuobjdump(packages: Path) -> str | None:
    named = os.environ.get("SPLATFIX_CUOBJDUMP") or shutil.which("cuobjdump")
    patterns = ("nvidia/*/bin/cuobjdump", "triton/backends/nvidia/bin/cuobjdump")
    inside = (str(path) for pattern in patterns for path in packages.glob(pattern))
    return named or next(inside, None)


def seconds(work: Callable[[], int]) -> tuple[float, int]:
    begun = time.perf_counter()
    answer = work()
    return time.perf_counter() - begun, answer


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    packages = options.packages or default_packages()
    tool = options.cuobjdump or find_cuobjdump(packages)
    files = [
        path
        for name in ("torch", "nvidia")
        if (packages / name).is_dir()
        for path in find_binaries(packages / name)
    ]
    if tool is None or not files:
        missing = (
            "cuobjdump (pip install nvidia-cuda-cuobjdump)" if tool is None else f"a CUDA torch in {packages}"
        )
        print(f"cannot measure: {missing} was not found", file=sys.stderr)
        return 3

    def ours() -> int:
        binaries = [read_binary(path) for path in files]
        return sum(
            entry.kind is EntryKind.SASS
            for binary in binaries
            for box in binary.fatbins
            for entry in box.entries
        )

    def theirs() -> int:
        count = 0
        for path in files:
            # -all: link-time code as well, so that both list the same
            done = subprocess.run([tool, "-all", "--list-elf", path], capture_output=True, text=True)
            count += sum(line.startswith("ELF file") for line in done.stdout.splitlines())
        return count

    def starts() -> int:
        for _ in files:
            subprocess.run([tool, "--version"], capture_output=True)
        return 0

    mine, listed = ours(), theirs()
    if mine != listed:
        print(f"the two disagree: {mine} cubins against {listed}", file=sys.stderr)
        return 1
    rounds = [(seconds(ours)[0], seconds(theirs)[0], seconds(starts)[0]) for _ in range(options.rounds)]
    reader, peer, start = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(theirs_time / ours_time for ours_time, theirs_time, _ in rounds)
    result = {
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "cubins": mine,
        "reader_seconds": round(reader, 4),
        "cuobjdump_seconds": round(peer, 4),
        "cuobjdump_start_seconds": round(start, 4),
        "ratio": round(ratio, 1),
        "ratio_without_process_starts": round((peer - start) / reader, 1),
        "target": TARGET,
    }
    print(
        f"{result['files']} libraries, {result['bytes'] / 1e9:.2f} GB, {mine} cubins, median of {options.rounds} rounds"
    )
    print(f"  splatfix.binaries       {reader:8.3f} s")
    print(
        f"  cuobjdump --list-elf    {peer:8.3f} s   (of which {start:.3f} s only to start {len(files)} processes)"
    )
    print(f"  ratio                   {ratio:8.1f} x  (target {TARGET:.0f} x)")
    print(f"  without process starts  {result['ratio_without_process_starts']:8.1f} x")
    keep(result, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
