"""Times ``splatfix report merge`` of many certificates beside json.loads of the same files, each in a process of its own.

    python tests/benchmarks/bench_merge.py [--count N] [--rounds N]

The certificates are a recorded run of three scenes with the facts of this environment, in 160 variants of GPU, driver,
torch, stack and outcome, each in a report folder of its own. Processor time is printed too: other load does not count there.
"""

import itertools
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import measuring
from measuring import beside_json_load
from msgspec.structs import replace


def base_document(folder: Path) -> dict[str, Any]:
    """A certificate of this environment, its three trainings recorded."""
    from splatfix.app import certify as app
    from splatfix.facts import gather
    from tests.certify.conftest import SHORT, RecordedTrainer, subject

    app.train_and_judge = partial(app.train_and_judge, runner=RecordedTrainer())
    suite = replace(SHORT, iterations=None, scenes=("figurine", "fruit", "desk"))
    app.run_and_report(subject(suite, folder), gather(sys.executable))
    document: dict[str, Any] = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    return document


def main() -> None:
    parser = measuring.parser(__doc__, rounds=3)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()

    from tests.report.certificates import varied

    with tempfile.TemporaryDirectory(prefix="splatfix-bench-") as name:
        lab, out = Path(name) / "lab", Path(name) / "out"
        documents = itertools.cycle(varied(base_document(Path(name) / "base")))
        size = 0
        for number, document in zip(range(options.count), documents, strict=False):
            file = lab / str(number) / "certificate.json"
            file.parent.mkdir(parents=True)
            size += file.write_text(json.dumps(document), encoding="utf-8")
        merge = [sys.executable, "-m", "splatfix", "report", "merge", str(lab), "--out", str(out)]
        taken = beside_json_load(merge, lab, options.rounds)
        page = (out / "certificates.html").stat().st_size
    print(f"{options.count} certificates of {size // options.count} bytes")
    measuring.show("report merge", taken)
    print(f"{options.count / taken['seconds']:.0f} a second; the page has {page / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
