"""Whose exit codes and whose one line: the conventions of those who start a gate."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum

from splatfix.core.words import counted
from splatfix.fleet.verdict import NodeVerdict, State, reason_of


class Caller(str, Enum):
    """Who starts the gate. Sources: slurm.conf(5) on HealthCheckProgram and Prolog; Kubernetes on exec probes; the custom
    plugins of node-problem-detector; the Monitoring Plugins' development guidelines; Prometheus' text format for
    node_exporter's textfile collector; the exit codes of facebookresearch/gcm's health checks."""

    slurm = "slurm"
    kubernetes = "kubernetes"
    npd = "npd"
    nagios = "nagios"
    prometheus = "prometheus"
    gcm = "gcm"


_OK = {State.OK: 0, State.WARN: 0, State.UNKNOWN: 0}
_MONITORING = {State.OK: 0, State.WARN: 1, State.FAIL: 2, State.UNKNOWN: 3}
_EXIT_CODES: Mapping[Caller | None, Mapping[State, int]] = {
    # of splatfix itself
    None: {**_OK, State.UNKNOWN: 3},
    # a prolog that ends otherwise than with 0 drains its node: nothing but a failure may do that
    Caller.slurm: _OK,
    # so may nothing else fail a probe or an init container
    Caller.kubernetes: _OK,
    # 1 sets the condition; anything above leaves it unknown
    Caller.npd: {**_OK, State.UNKNOWN: 2},
    Caller.nagios: _MONITORING,
    # what is exported is read, whatever it says
    Caller.prometheus: {**_OK, State.FAIL: 0},
    Caller.gcm: _MONITORING,
}
_LONGEST_OF_NPD = 80
"""Bytes of a line that node-problem-detector keeps unless it is told otherwise (``max_output_length``)."""


def exit_code_for(caller: Caller | None, verdict: NodeVerdict) -> int:
    """Where a caller acts by itself, it is whether the node is to be drained that counts; to one that shows, the state."""
    codes = _EXIT_CODES[caller]
    if State.FAIL in codes:
        return codes[verdict.state]
    if verdict.drain:
        return 1
    return codes.get(verdict.state, 0)


def unknown_code(caller: Caller) -> int:
    """For a node of which nothing is known."""
    return _EXIT_CODES[caller][State.UNKNOWN]


def line_for(caller: Caller | None, verdict: NodeVerdict) -> str:
    """The one line that a caller shows or keeps; for Prometheus the lines of its text format."""
    if caller is Caller.prometheus:
        return _metrics(verdict)
    text = _sentence(verdict)
    if caller is Caller.nagios:
        # a bar would begin the performance data
        label = {State.FAIL: "CRITICAL", State.WARN: "WARNING"}.get(
            verdict.state, verdict.state.value.upper()
        )
        return f"SPLATFIX {label} - {text.replace('|', '/')} | {_performance(verdict)}\n"
    if caller is Caller.npd and len(text.encode()) > _LONGEST_OF_NPD:
        text = f"{text.encode()[: _LONGEST_OF_NPD - 3].decode(errors='ignore')}..."
    if caller is None:
        text = f"{verdict.node}: {text}"
    return f"{text}\n"


def _sentence(verdict: NodeVerdict) -> str:
    reason = reason_of(verdict.checks, verdict.state)
    if verdict.state is State.FAIL and not verdict.drain:
        return f"failing, not drained yet: {reason}"
    if verdict.state is not State.FAIL and verdict.drain:
        return f"not returned yet, {verdict.state.value} now; {verdict.reason}"
    if reason:
        return f"{verdict.state.value}: {reason}"
    return f"ok: nothing is wrong in {counted(len(verdict.checks), 'finding')}"


def _performance(verdict: NodeVerdict) -> str:
    """``'label'=value[unit];[warn];[crit];[min];[max]``, as the guidelines have it."""
    # a clock that was set meanwhile may have gone back
    seconds = max(0.0, (_time(verdict.finished) - _time(verdict.started)).total_seconds())
    failed = sum(check.state is State.FAIL for check in verdict.checks)
    unknown = sum(check.state is State.UNKNOWN for check in verdict.checks)
    gpus = len(verdict.alike.gpus)
    return f"gpus={gpus};;;0 failed={failed};;1;0 unknown={unknown};;;0 time={seconds:.3f}s;;;0"


def _metrics(verdict: NodeVerdict) -> str:
    lines = [
        "# HELP splatfix_gate_state State of this node by splatfix gate.",
        "# TYPE splatfix_gate_state gauge",
    ]
    lines += [
        f'splatfix_gate_state{{state="{state.value}"}} {int(verdict.state is state)}' for state in State
    ]
    lines += [
        "# HELP splatfix_gate_drain 1 where the node is to take no work.",
        "# TYPE splatfix_gate_drain gauge",
    ]
    lines += [f"splatfix_gate_drain {int(verdict.drain)}"]
    lines += [
        "# HELP splatfix_gate_check_failed 1 where a check failed; one that is not known has no sample.",
        "# TYPE splatfix_gate_check_failed gauge",
    ]
    failed: dict[str, int] = {}
    for check in verdict.checks:
        if check.state is not State.UNKNOWN:
            failed[check.code] = max(failed.get(check.code, 0), int(check.state is State.FAIL))
    lines += [f'splatfix_gate_check_failed{{check="{code}"}} {value}' for code, value in failed.items()]
    lines += [
        "# HELP splatfix_gate_finished_timestamp_seconds When it was judged.",
        "# TYPE splatfix_gate_finished_timestamp_seconds gauge",
        f"splatfix_gate_finished_timestamp_seconds {_time(verdict.finished).timestamp():.0f}",
    ]
    return "\n".join(lines) + "\n"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
