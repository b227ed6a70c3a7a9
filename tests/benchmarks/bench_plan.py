"""Times the options on every simulated machine, beside what pip takes to resolve one requirement that is installed.

    python tests/benchmarks/bench_plan.py [--rounds N] [--json FILE]

Each round answers every machine and four goals once, in a process that has loaded everything, and runs the peer once;
medians over rounds, slowest single answer, and ratios are printed. The first answer of a fresh process, which also reads
the tables, is timed apart.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import measuring
from measuring import conditions, keep

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
    options = ["--dry-run", "--no-index", "--quiet", "packaging"]
    return measuring.run([sys.executable, "-m", "pip", "install", *options]).seconds


def main() -> None:
    parser = measuring.parser(__doc__, rounds=5)
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
        firsts.append(float(measuring.run([sys.executable, "-c", FIRST, some]).output))
    per_answer = statistics.median(statistics.mean(seconds) for seconds in rounds)
    slowest = statistics.median(max(seconds) for seconds in rounds)
    first, pip = statistics.median(firsts), statistics.median(peers)
    result = {
        "machines": len(facts),
        "answers_a_round": len(rounds[0]),
        "rounds": options.rounds,
        **conditions(),
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
    keep(result, options.json)


if __name__ == "__main__":
    main()
