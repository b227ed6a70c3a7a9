"""Runs cases one by one, each in a child with limits on time and memory, and says which of them failed and why.

A case is a name from which it can be made again, and a function that gets an empty folder and asserts. The child is a
fork of a process that has imported everything already, so that hundreds of cases cost little more than what they do.
"""

import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SECONDS = 20.0
MEGABYTES = 500
# Beyond what is mapped already (a test worker with torch maps gigabytes), and far above the limit on memory: a case that
# runs away fails by itself, and not the machine with it.
_ADDRESS_SPACE = 2 << 30


@dataclass(frozen=True)
class Case:
    """One input."""

    name: str
    run: Callable[[Path], None]


def seeded(run: Callable[[Path, int], None], count: int, seed: int) -> Iterator[Case]:
    """A case for each number from ``seed`` on, which the case is made from."""
    for number in range(seed, seed + max(1, count)):
        yield Case(f"seed-{number}", lambda folder, number=number: run(folder, number))  # type: ignore[misc]


def run_all(cases: Iterable[Case]) -> tuple[int, dict[str, str]]:
    """Run every case; a failure ends that case only. How many inputs were tried, and why each failed, by the case's name."""
    tried, failed = 0, {}
    for case in cases:
        tried += 1
        if why := run_one(case):
            failed[case.name] = why
            print(f"{case.name}: {why.strip().splitlines()[-1]}", file=sys.stderr, flush=True)
    return tried, failed


def run_one(case: Case) -> str:
    """Why a case failed, or "": in a child and a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    child = os.fork()
    if child == 0:
        os._exit(_in_child(case, folder))
    try:
        watch = os.pidfd_open(child)
        in_time = bool(select.select([watch], [], [], SECONDS)[0])
        os.close(watch)
        with suppress(ProcessLookupError):  # the child, when it hangs, and whatever it leaves behind
            os.killpg(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
        if not in_time:
            return f"not done within {SECONDS:g} s"
        if os.WIFSIGNALED(status):
            return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
        if status:
            said = folder / "why"
            return said.read_text(errors="replace") if said.exists() else f"exit status {status}"
        # Of the case and every process it started, beyond what the child began with, as the child counted it: a fork
        # begins without the file pages (libraries) that its parent holds.
        megabytes = usage.ru_maxrss / 1024 - float((folder / "began").read_text())
        return f"{megabytes:.0f} MB of memory" if megabytes > MEGABYTES else ""
    finally:
        # all of it, also what may not be listed, or is nested deeper than Python recurses
        for argv in (["chmod", "-R", "u+rwX", str(folder)], ["rm", "-rf", str(folder)]):
            subprocess.run(argv, check=False, stderr=subprocess.DEVNULL)


def _in_child(case: Case, folder: Path) -> int:
    """What the child does; its exit status."""
    inside = folder / "case"
    mapped, held, *_ = (
        int(pages) * resource.getpagesize() for pages in Path("/proc/self/statm").read_text().split()
    )
    (folder / "began").write_text(f"{held / 2**20}")
    try:
        os.setsid()
        space = mapped + _ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        inside.mkdir()
        os.chdir(inside)
        case.run(inside)
    except BaseException:  # noqa: BLE001 - a failure of any kind is what is looked for
        (folder / "why").write_text(traceback.format_exc(limit=-8), errors="replace")
        return 1
    return 0
