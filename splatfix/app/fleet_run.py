"""``splatfix fleet run``: the verdict of every node and a few certifications, by the scheduler that a cluster has."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from splatfix.app import report
from splatfix.app.certify import code_of_verdict
from splatfix.app.fleet_report import VERDICTS, read_verdicts
from splatfix.app.interrupts import on_interrupt
from splatfix.app.result import Result
from splatfix.app.stored import NAME, read_without_facts
from splatfix.certify.model import Verdict
from splatfix.core.codec import to_json
from splatfix.core.data import dataclass, replace
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import make_folder, set_aside, write_text
from splatfix.core.runner import ProcessRunner
from splatfix.core.visible import visible
from splatfix.core.words import counted, few
from splatfix.fleet.slurm_jobs import Slurm, Task, script, watch
from splatfix.fleet.verdict import State
from splatfix.report.nodes import WORST, NodeMerger, Why

if TYPE_CHECKING:
    from rich.console import Console

CERTIFICATES, LOGS, MATRIX, NODES = "certificates", "logs", "matrix", "nodes.txt"

_CERTIFICATION = "certification "
"""How the names of tasks begin that are no node's."""


@dataclass(frozen=True)
class NodeAnswer:
    """What came of asking a node."""

    node: str
    state: State | None
    """Of its verdict; None where it gave none."""
    reason: str
    """Why it gave none, or ""."""


@dataclass(frozen=True)
class FleetRun:
    """What came of asking a cluster."""

    nodes: tuple[NodeAnswer, ...]
    certifications: tuple[Task, ...]
    folder: str
    """With ``verdicts``, ``certificates``, ``logs`` and ``nodes.txt``."""
    files: tuple[str, ...]
    """Of the matrix of the certificates."""


@dataclass(frozen=True)
class FleetRequest:
    """Which nodes, and what they do."""

    out: Path
    """On a disk that all nodes see."""
    partition: str = ""
    certify: int = 0
    """How many certifications."""
    certify_options: tuple[str, ...] = ()
    policy: Path | None = None
    """Of the gate."""
    sbatch_options: tuple[str, ...] = ()
    wait: float = 3600.0
    """Seconds for all of it."""


def run_on_slurm(request: FleetRequest) -> Result:
    """Ask every node for its verdict, certify on some, and merge what came.

    Exit code 1 where a verdict fails or a certification did; else 3 where something brought nothing.

    Raises:
        SplatfixError: ``no-slurm``, ``cannot-write`` (exit code 3).
    """
    slurm = Slurm(ProcessRunner())
    out = request.out.absolute()
    nodes = slurm.nodes(request.partition)
    make_folder(out)
    set_aside(out, (VERDICTS, CERTIFICATES, LOGS, MATRIX, NODES))
    for name in (VERDICTS, CERTIFICATES, LOGS):
        make_folder(out / name)
    name = f"splatfix-{os.getpid()}-{os.urandom(3).hex()}"
    tasks = [Task(node, "", reason=reason) for node, reason in nodes.items() if reason]
    interrupted = f"Interrupted: the jobs go on. End them with\n  $ scancel --name={name}"
    with on_interrupt(interrupted):
        jobs = _submitted(slurm, name, request, [node for node, aside in nodes.items() if not aside])
        tasks += watch(slurm, name, jobs, request.wait)
    tasks.sort(key=lambda task: task.name)
    answers = _answers(out, [task for task in tasks if task.name in nodes])
    write_nodes(out, answers)
    judged = [_judged(out, task) for task in tasks if task.name not in nodes]
    certifications, codes = [task for task, _ in judged], [code for _, code in judged]
    files: list[str] = []
    if certifications:
        lost = {
            task.name: _refusal(task) for task in certifications if not _certificate(out, task.name).is_file()
        }
        merged = report.merge([out / CERTIFICATES], out / MATRIX, lost)
        files = list(merged.data()["files"])
    ran = FleetRun(tuple(answers), tuple(certifications), str(out), tuple(files))
    return Result(
        "fleet run", lambda: to_json(ran), lambda console: show(console, ran), exit_code_of(ran, codes)
    )


def _submitted(slurm: Slurm, name: str, request: FleetRequest, nodes: Sequence[str]) -> dict[str, str]:
    """Hand all jobs in; names of tasks by the jobs' numbers."""
    out = request.out.absolute()
    splatfix = (sys.executable, "-m", "splatfix")
    options = list(request.sbatch_options)
    if request.partition:
        options.append(f"--partition={request.partition}")
    logs = out / LOGS
    jobs: dict[str, str] = {}
    for node in nodes:
        gate = [*splatfix, "gate", "--for", "slurm", "--node", node, "--out", str(out / VERDICTS)]
        if request.policy is not None:
            gate += ["--policy", str(request.policy.absolute())]
        # elsewhere it would be another node's verdict
        where = ("--no-requeue", f"--nodelist={node}", "--nodes=1")
        jobs[slurm.submit(name, script(gate), logs / f"{node}.log", (*options, *where))] = node
    if request.certify:
        # the shell of the job fills in the number
        folder = f'{shlex.quote(str(out / CERTIFICATES))}/"$SLURM_ARRAY_TASK_ID"'
        certify = f"{script((*splatfix, 'certify'))} --out {folder} {shlex.join(request.certify_options)}"
        array = slurm.submit(
            name,
            certify,
            logs / "certification-%a.log",
            (*options, f"--array=0-{request.certify - 1}", "--requeue"),
        )
        jobs |= {f"{array}_{number}": f"{_CERTIFICATION}{number}" for number in range(request.certify)}
    return jobs


def _answers(out: Path, tasks: Sequence[Task]) -> list[NodeAnswer]:
    """What the nodes' jobs left, as ``fleet report`` reads it: other machines write into that folder."""
    merger = NodeMerger(datetime.now(timezone.utc))
    read_verdicts([out / VERDICTS], out, merger)
    fleet = merger.merged()
    unread = {item.node: item.reason for item in fleet.remarks if item.why is Why.UNREAD}
    states: dict[str, set[State]] = {}
    for node in fleet.nodes:
        states.setdefault(node.name, set()).add(node.state)
    answers = []
    for task in tasks:
        reason = task.reason
        if not reason and task.name in unread:
            reason = f"its verdict cannot be read: {unread[task.name]}"
        elif not reason and task.name not in states:
            reason = _nothing(task)
        state = None if reason else min(states[task.name], key=WORST.index)
        answers.append(NodeAnswer(task.name, state, reason))
    return answers


def _judged(out: Path, task: Task) -> tuple[Task, Exit]:
    """A certification with what is missing of it, and its exit code, 3 for one that came to no end. A certificate that is whole
    counts, whatever became of its job afterwards."""
    file = _certificate(out, task.name)
    if not file.is_file():
        return replace(task, reason=task.reason or _nothing(task)), Exit.UNDETERMINED
    try:
        document = read_without_facts(str(file))
    except SplatfixError as problem:
        return replace(task, reason=task.reason or problem.what), Exit.UNDETERMINED
    if document.get("unfinished") or document.get("interrupted"):
        reason = task.reason or f"it was ended before its end ({_state(task)})"
        return replace(task, reason=reason), Exit.UNDETERMINED
    return replace(task, reason=""), code_of_verdict(Verdict(document["verdict"]))


def _nothing(task: Task) -> str:
    return f"it left nothing ({_state(task)}); its log is in {LOGS}"


def _state(task: Task) -> str:
    return task.state or "Slurm forgot it"


def write_nodes(out: Path, answers: Sequence[NodeAnswer]) -> None:
    """A line for each node, with why it gave no verdict, as ``fleet report --nodes`` reads it.

    Raises:
        SplatfixError: ``cannot-write`` (exit code 3).
    """
    lines = [f"{answer.node}  # {answer.reason}" if answer.reason else answer.node for answer in answers]
    write_text(out / NODES, "".join(f"{visible(line)}\n" for line in lines))


def _certificate(out: Path, name: str) -> Path:
    return out / CERTIFICATES / name.removeprefix(_CERTIFICATION) / NAME


def _refusal(task: Task) -> SplatfixError:
    return SplatfixError("no-certificate", f"No certificate: {task.reason}.")


def exit_code_of(ran: FleetRun, codes: Sequence[int] = ()) -> Exit:
    """1 where something fails, else 3 where something brought nothing.

    Args:
        codes: exit codes of the certifications.
    """
    if Exit.FAILURE in codes or any(item.state is State.FAIL for item in ran.nodes):
        return Exit.FAILURE
    if any(codes) or any(item.state in (None, State.UNKNOWN) for item in ran.nodes):
        return Exit.UNDETERMINED
    return Exit.OK


def show(console: Console, ran: FleetRun) -> None:
    """What came of it, and the command that merges all."""

    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    for state in State:
        named = [item.node for item in ran.nodes if item.state is state]
        if named:
            line(f"{state.value:8} {counted(len(named), 'node')}: {few(named)}")
    for item in ran.nodes:
        if item.state is None:
            line(f"no verdict of {item.node}: {item.reason}")
    if ran.certifications:
        made = sum(not task.reason for task in ran.certifications)
        line(f"{made} of {counted(len(ran.certifications), 'certification')} came to their end")
    for task in ran.certifications:
        if task.reason:
            line(f"{task.name}{f' on {task.node}' if task.node else ''}: {task.reason}")
    line(
        f"Next: all of it as one picture\n  $ splatfix fleet report {ran.folder} --nodes {ran.folder}/{NODES}"
    )
