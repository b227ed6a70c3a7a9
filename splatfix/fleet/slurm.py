"""Drains and returns a node in Slurm, by scontrol."""

from __future__ import annotations

import re

from splatfix.core.runner import Completed, Runner
from splatfix.fleet.verdict import NodeVerdict, State

OURS = "splatfix: "
"""How the reason of a node begins that this drained; one that somebody else drained stays as it is."""
_LONGEST_REASON = 200


def apply(verdict: NodeVerdict, runner: Runner, seconds: float) -> str:
    """Bring the node into the state that the verdict asks for; why that was not possible, or "".

    Slurm's own record is asked each time: it outlives a controller's restart and a state folder that was lost.

    Args:
        seconds: that each of Slurm's commands gets.
    """
    shown = runner.run(("scontrol", "show", "node", verdict.node, "--oneliner"), timeout=seconds)
    if not shown.ok:
        return _failed(shown)
    state = re.search(r"\bState=(\S+)", shown.stdout)
    reason = re.search(r"\bReason=(.*?)(?: \[\S+@\S+\])?\s*$", shown.stdout)
    drained = state is not None and "DRAIN" in state[1].split("+")
    ours = reason is not None and reason[1].startswith(OURS)
    if verdict.drain and not drained:
        text = f"{OURS}{verdict.reason}"[:_LONGEST_REASON]
        return _failed(_update(verdict.node, runner, seconds, "State=DRAIN", f"Reason={text}"))
    # what a prolog drained at once, the health check has yet to count
    well = verdict.state in (State.OK, State.WARN)
    if well and not verdict.drain and drained and ours:
        return _failed(_update(verdict.node, runner, seconds, "State=RESUME"))
    return ""


def _update(node: str, runner: Runner, seconds: float, *changes: str) -> Completed:
    return runner.run(("scontrol", "update", f"NodeName={node}", *changes), timeout=seconds)


def _failed(done: Completed) -> str:
    return f"scontrol: {done.why()}" if not done.ok else ""
