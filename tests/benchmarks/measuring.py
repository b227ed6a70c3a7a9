"""What the benchmarks share: the command line, times and memory."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


def parser(text: str | None, rounds: int) -> argparse.ArgumentParser:
    """With the option that all have."""
    result = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--rounds", type=int, default=rounds, help="measured rounds")
    return result


class Taken(NamedTuple):
    """By a child and its own children: seconds on the clock and of processors, and the largest resident size in MiB."""

    seconds: float
    processor: float
    mib: float
    output: str


def run(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Taken:
    """A whole command as a process of its own; one that failed would be a wrong number, and ends the benchmark."""
    begun = time.perf_counter()
    with subprocess.Popen(
        argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}: {output.strip()[-500:]}")
    seconds = time.perf_counter() - begun
    return Taken(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output)


JSON_LOAD = """
import json, os, sys
for place, folders, files in os.walk(sys.argv[1]):
    for name in files:
        with open(os.path.join(place, name), encoding="utf-8") as file:
            try:
                json.load(file)
            except ValueError:
                pass
"""


def beside_json_load(argv: Sequence[str], folder: Path, rounds: int) -> dict[str, float]:
    """A command that reads all documents of a folder, and json.load of each of them in turn with it."""
    own: list[Taken] = []
    peers: list[Taken] = []
    for _ in range(rounds):
        own.append(run(argv))
        peers.append(run([sys.executable, "-c", JSON_LOAD, str(folder)]))
    seconds, peer = (statistics.median(item.seconds for item in items) for items in (own, peers))
    busy, peer_busy = (statistics.median(item.processor for item in items) for items in (own, peers))
    taken = {"largest_resident_mib": max(item.mib for item in own)}
    taken |= {"seconds": seconds, "json_load_seconds": peer, "ratio_to_json_load": seconds / peer}
    taken |= {"processor_seconds": busy, "json_load_processor_seconds": peer_busy}
    return taken | {"processor_ratio_to_json_load": busy / peer_busy}


def show(name: str, taken: Mapping[str, float]) -> None:
    """What :func:`beside_json_load` gave, for people."""
    for what, key in (("", ""), ("of a processor ", "processor_")):
        print(
            f"{name} {taken[f'{key}seconds']:.2f} s {what}beside {taken[f'json_load_{key}seconds']:.2f} s of "
            f"json.load: {taken[f'{key}ratio_to_json_load']:.2f}"
        )
    print(f"memory {taken['largest_resident_mib']:.0f} MiB at most")
