"""Times ``splatfix fleet report`` of many verdicts beside json.loads of the same files, each in a process of its own.

    python tests/benchmarks/bench_fleet.py [--count N] [--rounds N] [--json FILE]

The verdicts are those of recorded machines by all checks that a node has, one a node; some are lost, torn, late and doubled.
10,000 of them are to be merged within 10 s of a processor and 200 MB: more ends the benchmark with exit code 1.
"""

import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import measuring
from measuring import beside_json_load, conditions, keep

MACHINES = ("h200", "driver-without-reboot", "card-without-driver", "t4-container-locked-down")
SECONDS, MEGABYTES = 10, 200


def documents(folder: Path) -> list[dict[str, Any]]:
    """A verdict of each machine."""
    from splatfix.app.gate import GateRequest, gate
    from splatfix.checks import FAMILIES, checks_without_checkout
    from tests.machines import folder as machine

    families = sorted({check.family for check in checks_without_checkout()} & {*FAMILIES})
    policy = folder / "all.toml"
    policy.write_text(
        f'[checks]\ndrain = ["driver"]\nwarn = {[name for name in families if name != "driver"]}\n'
    )
    verdicts = []
    for name in MACHINES:
        request = GateRequest(
            policy=policy, node="n", facts_file=machine(name), out=folder / name, timeout=120
        )
        gate(request)
        verdicts.append(json.loads((folder / name / "n.json").read_text(encoding="utf-8")))
    return verdicts


def write(folder: Path, verdicts: list[dict[str, Any]], count: int) -> int:
    """A file a node, of each hundred one torn and one late, and one node with two machines; returns their bytes."""
    folder.mkdir()
    size = 0
    for number, document in zip(range(count), itertools.cycle(verdicts)):
        name = file = f"gpu{number:05}"
        if number % 100 == 3:
            name, file = f"gpu{number - 1:05}", f"gpu{number - 1:05}-other"
        text = json.dumps({**document, "node": name, "machine": f"{number:012x}"}, indent=2)
        if number % 100 == 1:
            text = text[: len(text) // 2]
        if number % 100 == 2:
            text = text.replace(document["finished"], "2026-01-01T00:00:00+00:00")
        size += (folder / f"{file}.json").write_text(text, encoding="utf-8")
    return size


def main() -> None:
    parser = measuring.parser(__doc__, rounds=3)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="splatfix-bench-") as name:
        place = Path(name)
        size = write(place / "verdicts", documents(place), options.count)
        (place / "nodes.txt").write_text("".join(f"gpu{number:05}\n" for number in range(options.count + 10)))
        report = [
            sys.executable,
            "-m",
            "splatfix",
            "fleet",
            "report",
            str(place / "verdicts"),
            "--max-age",
            "1d",
        ]
        report += ["--nodes", str(place / "nodes.txt"), "--out", str(place / "out")]
        # failing nodes are among them
        taken = beside_json_load(report, place / "verdicts", options.rounds, allowed=(1,))
        page = (place / "out" / "fleet.html").stat().st_size
        told = json.loads((place / "out" / "fleet.json").read_text(encoding="utf-8"))["remarked"]
    each = options.count // 100
    expected = {
        "lost": 10 + each,
        "unread": each,
        "late": each,
        "ahead": 0,
        "doubled": 2 * each,
        "unlisted": 0,
    }
    if told != expected:
        raise SystemExit(f"told {told} instead of {expected}")
    result = {
        "verdicts": options.count,
        "mean_bytes": size // options.count,
        "rounds": options.rounds,
        **conditions(),
        **taken,
        "page_bytes": page,
        "limits": {"processor_seconds": SECONDS, "megabytes": MEGABYTES},
    }
    print(f"{options.count} verdicts of {size // options.count} bytes, load {result['load']:.1f}")
    measuring.show("fleet report", taken)
    print(f"the page has {page / 2**20:.1f} MiB; limits: {SECONDS} s of a processor, {MEGABYTES} MB")
    keep(result, options.json)
    if taken["processor_seconds"] > SECONDS or taken["largest_resident_mib"] * 1.048576 > MEGABYTES:
        raise SystemExit("that is beyond the limits")


if __name__ == "__main__":
    main()
