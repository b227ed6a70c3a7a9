"""Times ``splatfix report merge`` of many certificates beside json.loads of the same files, each in a process of its own.

    python tests/benchmarks/bench_merge.py [--count N] [--rounds N] [--json FILE]

The certificates are a recorded run of three scenes with the facts of this environment, in 160 variants of GPU, driver,
torch, stack and outcome, each in a report folder of its own. Processor time is printed too: other load does not count there.
"""

import dataclasses
import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import measuring
from measuring import Taken, conditions, keep

PEER = """
import json, os, sys
for place, folders, files in os.walk(sys.argv[1]):
    for name in files:
        with open(os.path.join(place, name), encoding="utf-8") as file:
            json.load(file)
"""


def base_document(folder: Path) -> dict[str, Any]:
    """A certificate of this environment, its three trainings recorded."""
    from splatfix.app import certify as app
    from splatfix.facts import gather
    from tests.certify.conftest import SHORT, RecordedTrainer, subject

    app.train_and_judge = partial(app.train_and_judge, runner=RecordedTrainer())
    suite = dataclasses.replace(SHORT, iterations=None, scenes=("figurine", "fruit", "desk"))
    app.run_and_report(subject(suite, folder), gather(sys.executable))
    document: dict[str, Any] = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    return document


def main() -> None:
    parser = measuring.parser(__doc__, rounds=3)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()

    from tests.report.certificates import write_lab

    with tempfile.TemporaryDirectory(prefix="splatfix-bench-") as name:
        lab, out = Path(name) / "lab", Path(name) / "out"
        files = write_lab(lab, base_document(Path(name) / "base"), options.count)
        size = sum(path.stat().st_size for path in files)
        merges: list[Taken] = []
        peers: list[Taken] = []
        merge = [sys.executable, "-m", "splatfix", "report", "merge", str(lab), "--out", str(out)]
        for _ in range(options.rounds):
            merges.append(measuring.run(merge))
            peers.append(measuring.run([sys.executable, "-c", PEER, str(lab)]))
        page = (out / "certificates.html").stat().st_size
    seconds, peer = (statistics.median(run[0] for run in runs) for runs in (merges, peers))
    busy, peer_busy = (statistics.median(run[1] for run in runs) for runs in (merges, peers))
    result = {
        "certificates": options.count,
        "mean_bytes": size // options.count,
        "rounds": options.rounds,
        **conditions(),
        "seconds": seconds,
        "slowest_seconds": max(run[0] for run in merges),
        "certificates_per_second": options.count / seconds,
        "largest_resident_mib": max(run[2] for run in merges),
        "processor_seconds": busy,
        "json_load_seconds": peer,
        "json_load_processor_seconds": peer_busy,
        "ratio_to_json_load": seconds / peer,
        "page_bytes": page,
    }
    print(f"{options.count} certificates of {size // options.count} bytes, load {result['load']:.1f}")
    print(
        f"report merge   {seconds:7.2f} s   {result['certificates_per_second']:7.0f} a second   "
        f"{result['ratio_to_json_load']:.2f} of json.load ({peer:.2f} s)"
    )
    print(f"processor time {busy:7.2f} s   {busy / peer_busy:.2f} of json.load ({peer_busy:.2f} s)")
    print(
        f"memory         {result['largest_resident_mib']:7.0f} MiB at most; the page has {page / 2**20:.1f} MiB"
    )
    keep(result, options.json)


if __name__ == "__main__":
    main()
