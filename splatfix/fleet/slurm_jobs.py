"""The jobs of a run on a Slurm cluster: one for each node's verdict, and an array of certifications. Plain sbatch; what becomes
of them is asked of squeue, all at once."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from splatfix.core.data import dataclass, replace
from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Completed, Runner

_TIMEOUT = 30.0
_ASIDE = re.compile(r"drain|down|fail|maint|reboot|power|unk|planned|\*", re.IGNORECASE)
"""States of nodes that start no job; a star marks one that does not respond (sinfo(1))."""
_WAITING = {
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "SUSPENDED",
    "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
    "STOPPED",
}
_RUNNING = {"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING"}
_REASONS = {
    "CANCELLED": "it was cancelled",
    "NODE_FAIL": "its node was lost",
    "TIMEOUT": "it ran out of time",
    "OUT_OF_MEMORY": "it ran out of memory",
    "PREEMPTED": "another job took its place",
    "BOOT_FAIL": "its node did not start",
    "DEADLINE": "it missed its deadline",
}
_FIELDS = "JobArrayID:64,State:24,NodeList:256,Reason:128"
_WIDTHS = (64, 24, 256, 128)


@dataclass(frozen=True)
class Task:
    """One job."""

    name: str
    """Of the node whose verdict it is to bring, or ``certification NUMBER``."""
    state: str
    """Slurm's own word, such as ``COMPLETED``; "" for a node that is not asked, or a job that Slurm forgot."""
    node: str = ""
    """Where it ran."""
    reason: str = ""
    """Why it brought nothing; "" where it may have brought something."""

    @property
    def over(self) -> bool:
        """Nothing more becomes of it."""
        return self.state not in _WAITING | _RUNNING


class Slurm:
    """The commands of a cluster."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def nodes(self, partition: str) -> dict[str, str]:
        """Every node with why it starts no job, or ""."""
        argv = ["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"]
        if partition:
            argv.append(f"--partition={partition}")
        nodes = {}
        for line in self._asked(argv).stdout.splitlines():
            name, state, reason = line.split("|", 2)
            nodes[name] = ""
            if _ASIDE.search(state):
                nodes[name] = f"{state}: {reason}"
        if not nodes:
            raise SplatfixError.of(
                "fleet.no-slurm", reason=f"there is no node in the partition {partition!r}"
            )
        return nodes

    def submit(self, name: str, script: str, log: Path, options: Sequence[str]) -> str:
        """Hand a job in; returns its number.

        Raises:
            SplatfixError: ``no-slurm`` (exit code 3), with Slurm's own words.
        """
        argv = ["sbatch", "--parsable", f"--job-name={name}", f"--output={log}", *options, f"--wrap={script}"]
        return self._asked(argv).stdout.strip().partition(";")[0]

    def states(self, name: str) -> Mapping[str, Task] | None:
        """What squeue tells of the jobs of a name, by number (``17`` or ``17_3``); None where it does not answer."""
        argv = ("squeue", "--noheader", "--array", "--states=all", f"--name={name}", f"--Format={_FIELDS}")
        done = self._runner.run(argv, timeout=_TIMEOUT)
        if not done.ok:
            return None
        tasks = {}
        for line in done.stdout.splitlines():
            cells, at = [], 0
            for width in _WIDTHS:
                cells.append(line[at : at + width].strip())
                at += width
            job, state, node, reason_code = cells
            reason = _REASONS.get(state, "")
            if state in _WAITING:
                reason = f"it did not start: {reason_code}"
            tasks[job] = Task(job, state, node, reason)
        return tasks

    def cancel(self, name: str) -> None:
        self._runner.run(("scancel", f"--name={name}"), timeout=_TIMEOUT)

    def _asked(self, argv: Sequence[str]) -> Completed:
        done = self._runner.run(argv, timeout=_TIMEOUT)
        if not done.ok:
            raise SplatfixError.of("fleet.no-slurm", reason=f"{argv[0]}: {done.why()}")
        return done


def script(argv: Sequence[str]) -> str:
    """A command for a job's shell; exec, so that what Slurm sends reaches it."""
    return f"exec {shlex.join(argv)}"


def watch(
    slurm: Slurm,
    name: str,
    jobs: Mapping[str, str],
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Task]:
    """What becomes of jobs, each once it is over; those that are not in time are cancelled, and told as they are then.

    Args:
        name: that all of them have.
        jobs: names of tasks by their jobs' numbers.
    """
    until = time.monotonic() + seconds
    left = {job: Task(task, "PENDING", reason="it did not start") for job, task in jobs.items()}
    pause = 0.5
    while left and time.monotonic() < until:
        answer = slurm.states(name)
        for job in list(left) if answer is not None else ():
            # a controller that forgot a job has seen its end (MinJobAge)
            task = (answer or {}).get(job)
            if task is None and left[job].state not in _RUNNING:
                continue
            left[job] = replace(task or Task(job, ""), name=jobs[job])
            if left[job].over:
                yield left.pop(job)
        sleep(pause)
        pause = min(10.0, pause * 1.2)
    if left:
        slurm.cancel(name)
    for task in left.values():
        yield replace(task, reason=task.reason or f"it was not done within {seconds:g} s, and was cancelled")
