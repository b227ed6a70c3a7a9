"""The second installation of the same extension against the first: a kept wheel against a compilation.

    python tests/benchmarks/bench_install.py [--source DIR --target ARCH --python ENV] [--rounds N] [--json FILE]

Without --source a small C extension is built in a fresh venv. Every time is that of the whole command, as a process of
its own, with everything it proves (verification, installation, import); between two of them the first is taken back.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import measuring
from measuring import keep

TARGET_SECONDS = 5.0


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser(__doc__, rounds=3)
    parser.add_argument("--source", type=Path, help="extension source folder")
    parser.add_argument("--target", help="GPU architecture, for CUDA sources")
    parser.add_argument("--python", help="environment to install into")
    return parser.parse_args(arguments)


def timed(*words: str) -> tuple[float, float]:
    """Seconds on the clock, and seconds of processor time of the command and all its children."""
    taken = measuring.run([sys.executable, "-m", "splatfix", *words])
    return taken.seconds, taken.processor


def measure(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    from install.environments import make_environment, write_extension

    os.environ["SPLATFIX_CACHE"] = str(folder / "cache")
    # the first installation compiles, whatever ccache holds
    os.environ["CCACHE_DIR"] = str(folder / "ccache")
    source = options.source.resolve() if options.source else write_extension(folder / "source")
    python = options.python or make_environment(folder / "env").python
    install = ["install", str(source), "--python", python]
    install += ["--target", options.target] if options.target else []
    first, _ = timed(*install)
    again = []
    for _ in range(options.rounds):
        timed("revert", "--python", python)
        again.append(timed(*install))
    timed("revert", "--python", python)
    second = statistics.median(clock for clock, _ in again)
    return {
        "source": source.name,
        "target": options.target or "",
        "first_s": round(first, 2),
        "second_s": round(second, 2),
        "second_cpu_s": round(statistics.median(processor for _, processor in again), 2),
        "ratio": round(first / second, 2),
        "limit_s": TARGET_SECONDS,
        "within_limit": second <= TARGET_SECONDS,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    with tempfile.TemporaryDirectory(prefix="splatfix-bench-") as folder:
        result = measure(options, Path(folder))
    print(
        f"{result['source']}: first {result['first_s']} s, again {result['second_s']} s "
        f"({result['second_cpu_s']} s of processor time; {result['ratio']} times faster; limit {TARGET_SECONDS:g} s)"
    )
    keep(result, options.json)
    return 0 if result["within_limit"] else 1


if __name__ == "__main__":
    sys.exit(main())
