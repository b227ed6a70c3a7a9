"""Coverage-guided fuzzing of every reader of strangers' bytes: ``python -m tests.hostile.fuzz TARGET [--seconds N]``.

By Atheris (libFuzzer), which the extra ``test`` brings where it exists. What breaks a reader is kept in a folder and named.
"""

import argparse
import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

TARGETS = ("binaries", "source", "colmap", "ply", "logs", "wheels")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS, nargs="?")
    parser.add_argument("--list", action="store_true", help="print the targets")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument(
        "--crashes", type=Path, default=Path("build/fuzz"), help="where what breaks a reader is kept"
    )
    parser.add_argument("--only", type=Path, metavar="FILE", help="read this one")
    typed = parser.parse_args()
    if typed.list or not typed.target:
        print("\n".join(TARGETS))
        return 0 if typed.list else 2
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        folder, seeds = Path(temporary) / "files", Path(temporary) / "seeds"
        folder.mkdir()
        seeds.mkdir()
        atheris: Any = importlib.import_module("atheris")
        with atheris.instrument_imports(include=["splatfix", "smoke_trainer"]):
            targets = importlib.import_module("tests.hostile.targets")
        read_in, make_seeds = targets.READERS[typed.target]

        def read(data: bytes) -> None:
            read_in(data, folder)

        if typed.only:
            read(typed.only.read_bytes())
            return 0
        for name, data in make_seeds().items():
            (seeds / name).write_bytes(data)
            read(data)
        crashes = typed.crashes / typed.target
        crashes.mkdir(parents=True, exist_ok=True)
        limits = [f"-max_total_time={typed.seconds}", "-timeout=20", "-rss_limit_mb=900", "-max_len=200000"]
        options = [*limits, f"-artifact_prefix={crashes}/", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, str(seeds)], read)
        child = os.fork()
        if child == 0:
            atheris.Fuzz()  # ends the process
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
