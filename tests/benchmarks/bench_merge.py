"""Times ``splatfix report merge`` of many certificates beside json.load of the same files, each in a process of its own.

    python tests/benchmarks/bench_merge.py [--count N] [--rounds N]

The certificates are a recorded run of three scenes with the facts of this environment, in 160 variants of GPU, driver,
torch, stack and outcome, each in a report folder of its own. Processor time is printed too: other load does not count there.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

from measuring import ROOT
from msgspec.structs import replace

from splatfix.app import certify as app
from splatfix.facts import gather
from tests.certify.conftest import SHORT, RecordedTrainer, subject
from tests.report.certificates import varied

JSON_LOAD = (
    "import json, sys, pathlib\nfor path in pathlib.Path(sys.argv[1]).rglob('*.json'): json.load(path.open())"
)


def write_lab(folder: Path, count: int) -> int:
    """So many certificates; their bytes."""
    suite = replace(SHORT, iterations=None, scenes=("figurine", "fruit", "desk"))
    app.train_and_judge = partial(app.train_and_judge, runner=RecordedTrainer())
    with tempfile.TemporaryDirectory() as name:
        app.run_and_report(subject(suite, Path(name) / "base"), gather(sys.executable))
        base = json.loads((Path(name) / "base" / "certificate.json").read_text(encoding="utf-8"))
    texts = [json.dumps(document, indent=2) for document in itertools.islice(varied(base), count)]
    for number in range(count):
        (folder / f"run-{number:05}").mkdir(parents=True)
        (folder / f"run-{number:05}" / "certificate.json").write_text(
            texts[number % len(texts)], encoding="utf-8"
        )
    return sum(len(texts[number % len(texts)].encode()) for number in range(count))


def measured(argv: list[str]) -> tuple[float, float, float]:
    """Seconds on the clock, seconds of processors and the most MiB of a command, which must succeed."""
    begun = time.perf_counter()
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{argv} ended with {process.returncode}"
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="splatfix-bench-") as name:
        lab, out = Path(name) / "lab", Path(name) / "out"
        size = write_lab(lab, options.count)
        merge = [sys.executable, "-m", "splatfix", "report", "merge", str(lab), "--out", str(out)]
        peer = [sys.executable, "-c", JSON_LOAD, str(lab)]
        rounds = [(measured(merge), measured(peer)) for _ in range(options.rounds)]
        page = (out / "certificates.html").stat().st_size
    print(f"{options.count} certificates of {size // options.count} bytes")
    for what, place in (("", 0), ("of a processor ", 1)):
        own, theirs = (median(row[side][place] for row in rounds) for side in (0, 1))
        print(f"report merge {own:.2f} s {what}beside {theirs:.2f} s of json.load: {own / theirs:.2f}")
    seconds = median(own[0] for own, _ in rounds)
    print(f"memory {max(own[2] for own, _ in rounds):.0f} MiB at most")
    print(f"{options.count / seconds:.0f} a second; the page has {page / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
