"""Times the options on every simulated machine, beside what pip takes to resolve one requirement that is installed.

    python tests/benchmarks/bench_plan.py [--rounds N] [--json FILE]

Each round answers every machine and four goals once, in a process that has loaded everything, and runs the peer once;
medians over rounds, slowest single answer, and ratios are printed. The first answer of a fresh process, which also reads
the tables, is timed apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

FIRST = """
import sys, time
from pathlib import Path
from splatfix.facts import load
from splatfix.context import make_context
from splatfix.plan import find_options
facts = load(Path(sys.argv[1]))
start = time.perf_counter()
find_options(make_context(facts))
print(time.perf_counter() - start)
"""


def answer_all(facts: dict[str, Any], targets: tuple[str, ...]) -> list[float]:
    """Seconds of each single answer."""
    from splatfix.context import make_context
    from splatfix.plan import find_options
    from tests.archs import goal

    seconds = []
    for machine in facts.values():
        for target in targets:
            start = time.perf_counter()
            find_options(make_context(machine, goal(target)))
            seconds.append(time.perf_counter() - start)
    return seconds


def peer() -> float:
    """Seconds that pip needs to resolve and report one requirement that is already installed."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--quiet", "packaging"]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    from tests.machines import NAMES, facts_of, folder

    targets = ("auto", "sm_120", "sm_90", "sm_75")
    facts = {name: facts_of(name) for name in NAMES}
    rounds: list[list[float]] = []
    peers: list[float] = []
    firsts: list[float] = []
    some = str(folder("gtx-1080-ti-dropped"))
    for _ in range(options.rounds):
        rounds.append(answer_all(facts, targets))
        peers.append(peer())
        done = subprocess.run(
            [sys.executable, "-c", FIRST, some], check=True, capture_output=True, text=True, cwd=ROOT
        )
        firsts.append(float(done.stdout))
    per_answer = statistics.median(statistics.mean(seconds) for seconds in rounds)
    slowest = statistics.median(max(seconds) for seconds in rounds)
    first, pip = statistics.median(firsts), statistics.median(peers)
    result = {
        "machines": len(facts),
        "answers_a_round": len(rounds[0]),
        "rounds": options.rounds,
        "load": os.getloadavg()[0],
        "seconds_per_answer": per_answer,
        "slowest_answer": slowest,
        "first_answer_of_a_process": first,
        "pip_dry_run": pip,
        "ratio_to_pip": per_answer / pip,
    }
    print(f"{result['answers_a_round']} answers a round, {options.rounds} rounds, load {result['load']:.1f}")
    print(
        f"an answer            {per_answer * 1e3:8.1f} ms   {per_answer / pip:.3f} of pip install --dry-run ({pip:.2f} s)"
    )
    print(f"the slowest          {slowest * 1e3:8.1f} ms   {slowest / pip:.3f}")
    print(f"first of a process   {first * 1e3:8.1f} ms   {first / pip:.3f}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
