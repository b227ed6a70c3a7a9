"""What the benchmarks share: the command line, times, memory, under which conditions, and the file with the numbers."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


def parser(text: str | None, rounds: int) -> argparse.ArgumentParser:
    """With the options that all have."""
    result = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--rounds", type=int, default=rounds, help="measured rounds")
    result.add_argument("--json", type=Path, help="also write the numbers to this file")
    return result


def keep(result: object, file: Path | None) -> None:
    """Write the numbers where `--json` says so."""
    if file:
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def conditions(*packages: str) -> dict[str, Any]:
    """When, with which versions, and on how busy a machine."""
    versions = {"python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "versions": versions,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


class Taken(NamedTuple):
    """By a child and its own children: seconds on the clock and of processors, and the largest resident size in MiB."""

    seconds: float
    processor: float
    mib: float
    output: str


def run(
    argv: Sequence[str], allowed: Sequence[int] = (0,), env: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> Taken:
    """A whole command as a process of its own; one that failed would be a wrong number, and ends the benchmark."""
    begun = time.perf_counter()
    with subprocess.Popen(
        argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in allowed:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}: {output.strip()[-500:]}")
    seconds = time.perf_counter() - begun
    return Taken(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output)


def least(rounds: int, step: Callable[[], Any]) -> float:
    """Seconds of the processor, of the fastest round; the first does not count."""
    step()
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        step()
        times.append(time.process_time() - begun)
    return min(times)


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


def beside_json_load(
    argv: Sequence[str], folder: Path, rounds: int, allowed: Sequence[int] = (0,)
) -> dict[str, float]:
    """A command that reads all documents of a folder, and json.load of each of them in turn with it."""
    own: list[Taken] = []
    peers: list[Taken] = []
    for _ in range(rounds):
        own.append(run(argv, allowed))
        peers.append(run([sys.executable, "-c", JSON_LOAD, str(folder)]))
    seconds, peer = (statistics.median(item.seconds for item in items) for items in (own, peers))
    busy, peer_busy = (statistics.median(item.processor for item in items) for items in (own, peers))
    return {
        "seconds": seconds,
        "slowest_seconds": max(item.seconds for item in own),
        "largest_resident_mib": max(item.mib for item in own),
        "processor_seconds": busy,
        "json_load_seconds": peer,
        "json_load_processor_seconds": peer_busy,
        "ratio_to_json_load": seconds / peer,
        "processor_ratio_to_json_load": busy / peer_busy,
    }


def show(name: str, taken: Mapping[str, float]) -> None:
    """What :func:`beside_json_load` gave, for people."""
    for what, key in (("", ""), ("of a processor ", "processor_")):
        print(
            f"{name} {taken[f'{key}seconds']:.2f} s {what}beside {taken[f'json_load_{key}seconds']:.2f} s of "
            f"json.load: {taken[f'{key}ratio_to_json_load']:.2f}"
        )
    print(f"memory {taken['largest_resident_mib']:.0f} MiB at most")
