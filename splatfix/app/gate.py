"""``splatfix gate``: whether this node may take work, told to a scheduler or a monitoring system by its own convention."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from splatfix import __version__
from splatfix.app.result import Result, show_message
from splatfix.core.codec import from_json, to_json
from splatfix.core.data import dataclass, replace
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.forked import in_copy
from splatfix.core.lock import Lock, Locked
from splatfix.core.redact import redacted
from splatfix.fleet.callers import Caller, exit_code_for, line_for, unknown_code
from splatfix.fleet.history import next_of, read_history, write_history
from splatfix.fleet.policy import GatePolicy, read_policy
from splatfix.fleet.verdict import (
    Action,
    Alike,
    CheckVerdict,
    NodeVerdict,
    Policy,
    State,
    reason_of,
    shortened,
    state_of,
    verdict_file,
    write_verdict,
)

_MACHINE_ID = Path("/etc/machine-id")
# Where a lock goes without --state: the first is root's and emptied at boot.
_LOCK_FOLDERS = ("/run", "/tmp")  # nosec B108 - opened without following links, and nothing is read from it
_LEAST = 0.5
"""Seconds that writing the verdict gets, however long the judging took."""
_LEAST_OF_SLURM = 3.0
_ANOTHER = 2.0
"""Seconds that another gate of the same node is waited for: four times as long as one takes."""


@dataclass(frozen=True)
class GateRequest:
    """Who asks, by which policy, and where what is said goes."""

    caller: str | None = None
    """A :class:`Caller`; None for splatfix's own exit codes."""
    policy: Path | None = None
    node: str = ""
    """"" for the name that Slurm or the system gives it."""
    state: Path | None = None
    """A folder of this node's own, in which its history is kept."""
    out: Path | None = None
    """A folder for the verdict, which other nodes may share."""
    facts_file: Path | None = None
    python: str | None = None
    timeout: float = 10.0
    """Seconds for everything."""
    apply: bool = False
    """Drain or return the node in Slurm."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Gate(Result):
    """The verdict of a node."""

    verdict: NodeVerdict


@dataclass(frozen=True)
class _Looked:
    """The judgement, or what kept us from one: then a single check that is unknown."""

    checks: tuple[CheckVerdict, ...]
    alike: Alike
    problem: SplatfixError | None = None

    @classmethod
    def in_vain(cls, code: str, message: str, problem: SplatfixError | None = None) -> _Looked:
        return cls((CheckVerdict(code, State.UNKNOWN, Action.NONE, shortened(message)),), Alike(), problem)


def gate(request: GateRequest) -> Gate:
    """Judge the node, remember it, and tell whoever asked.

    Where somebody acts on the exit code, whatever keeps us from a verdict is a verdict, too: unknown, which drains nothing.

    Raises:
        SplatfixError: without a caller: ``bad-policy``, or facts that cannot be read (exit code 2).
    """
    if os.name != "posix":
        raise SplatfixError.of("app.gate-needs-posix")
    caller = Caller(request.caller) if request.caller else None
    started, until = _now(), time.monotonic() + request.timeout
    node = request.node or os.environ.get("SLURMD_NODENAME") or platform.node() or "localhost"
    policy, identity = GatePolicy(), Policy("", "")
    busy = ""
    try:
        policy, identity = read_policy(request.policy)
        with _alone(request.state, node):
            looked = _look(request, policy, until)
            verdict = _remembered(request, policy, _verdict(node, started, identity, looked))
    except Locked as locked:
        busy = locked.tell(locked_folder(request.state))
        looked = _Looked.in_vain("gate-locked", busy)
        verdict = _verdict(node, started, identity, looked)
    except SplatfixError as problem:
        looked = _Looked.in_vain(problem.code, problem.what, problem)
        verdict = _verdict(node, started, identity, looked)
    except OSError as error:  # no process more, no memory
        looked = _Looked.in_vain("gate-broke", f"The judgement broke: {error.strerror or error}.")
        verdict = _verdict(node, started, identity, looked)
    if looked.problem is not None and request.caller is None:
        raise looked.problem
    if request.apply and not busy:
        _tell(_applied(verdict, max(_LEAST_OF_SLURM, until - time.monotonic())))
    if request.out is not None and not busy:
        _tell(_written(request.out, verdict, max(_LEAST, until - time.monotonic())))
    line = line_for(caller, verdict)
    return Gate(
        command="gate",
        data=lambda: {"verdict": to_json(verdict)},
        text=lambda console: console.print(line.rstrip("\n"), markup=False, soft_wrap=True),
        exit_code=exit_code_for(caller, verdict),
        forms={"line": lambda: line},
        verdict=verdict,
    )


def code_of_unknown(caller: str) -> Exit | None:
    """The exit code for a node of which nothing is known; None for a caller that there is not."""
    if caller not in {item.value for item in Caller}:
        return None
    return Exit(unknown_code(Caller(caller)))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _look(request: GateRequest, policy: GatePolicy, until: float) -> _Looked:
    """Judge in a copy of this process: a driver that hangs holds up that copy alone."""
    try:
        answer = json.loads(in_copy(lambda: _judged(request, policy), until - time.monotonic()))
    except TimeoutError:
        return _Looked.in_vain(
            "gate-timeout", f"No answer within {request.timeout:g} s: the driver or a disk hangs."
        )
    except ChildProcessError as error:
        return _Looked.in_vain("gate-broke", f"The judgement broke: {error}.")
    if "error" in answer:
        return _Looked.in_vain(answer["code"], answer["error"], _problem_of(answer))
    return _Looked(from_json(tuple[CheckVerdict, ...], answer["checks"]), from_json(Alike, answer["alike"]))


def _judged(request: GateRequest, policy: GatePolicy) -> str:
    from splatfix import facts
    from splatfix.facts.system.recording import Redactor
    from splatfix.fleet.judge import judge

    try:
        if request.facts_file is not None:
            gathered = facts.load(request.facts_file)
        elif request.python is not None:
            choice = facts.choose_python(request.python)
            gathered = facts.gather(choice.python, chosen=choice.why)
        else:
            gathered = facts.gather("", chosen="no environment was named")
        judgement = judge(gathered, policy, Redactor(os.environ, platform.node()))
    except SplatfixError as error:
        return json.dumps({"code": error.code, "error": error.what, "exit_code": int(error.exit_code)})
    except Exception as error:  # noqa: BLE001 - a scheduler must not take our own defect for the node's
        return json.dumps({"code": "gate-broke", "error": f"{type(error).__name__}: {error}", "exit_code": 3})
    return json.dumps(to_json(judgement))


def _problem_of(answer: dict[str, Any]) -> SplatfixError | None:
    """As an error, where the call was wrong; all else is what the node is like."""
    if answer["exit_code"] != 2:
        return None
    return SplatfixError(answer["code"], answer["error"], exit_code=answer["exit_code"])


def _verdict(node: str, started: str, policy: Policy, looked: _Looked) -> NodeVerdict:
    state = state_of(looked.checks)
    return NodeVerdict(
        node=node,
        machine=_machine(node),
        started=started,
        finished=_now(),
        splatfix=__version__,
        policy=policy,
        state=state,
        drain=state is State.FAIL,
        reason=reason_of(looked.checks, state),
        checks=looked.checks,
        alike=looked.alike,
    )


def _machine(node: str) -> str:
    """The id itself is not to leave the machine: machine-id(5)."""
    try:
        own = _MACHINE_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        own = ""
    return hashlib.sha256(f"splatfix gate {own} {node}".encode(errors="surrogatepass")).hexdigest()[:12]


def _remembered(request: GateRequest, policy: GatePolicy, verdict: NodeVerdict) -> NodeVerdict:
    """The verdict with what was said before; it drains after as many failures as the policy wants.

    Where nothing can be kept, nothing can be counted: then each failure drains, and who was drained stays so.
    """
    if request.state is None:
        return verdict
    path = verdict_file(request.state, verdict.node)
    before, unread = read_history(path)
    history = next_of(before, verdict.state, verdict.reason, verdict.finished, policy)
    unwritten = write_history(path, redacted(history))
    _tell(unread)
    _tell(unwritten)
    drain, reason = history.drained, history.reason or verdict.reason
    previous = None
    if before is not None:
        previous = before.previous
    if unwritten:
        drain = verdict.drain or (before is not None and before.drained)
    return replace(verdict, drain=drain, reason=reason, previous=previous)


@contextmanager
def _alone(state: Path | None, node: str) -> Iterator[None]:
    """No second gate of this node runs at the same time; where no lock can be made (all is read-only), none is held."""
    name = f"splatfix-gate-{os.getuid()}-{quote(node, safe='', errors='surrogatepass')[:100]}.lock"
    folder = locked_folder(state)
    lock: Lock | None = None
    try:
        if state is not None:
            folder.mkdir(parents=True, exist_ok=True)
        lock = _locked(folder / name, time.monotonic() + _ANOTHER)
    except OSError as error:
        _tell(f"No lock in {folder}: {error.strerror or error}.")
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _locked(path: Path, until: float) -> Lock:
    """The lock; of two jobs that start at once the second prolog waits for the first one's."""
    while True:
        try:
            return Lock(path)
        except Locked:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def locked_folder(state: Path | None) -> Path:
    """Where the lock of a gate goes."""
    if state is not None:
        return state
    return next(
        Path(folder) for folder in _LOCK_FOLDERS if os.access(folder, os.W_OK) or folder == _LOCK_FOLDERS[-1]
    )


def _applied(verdict: NodeVerdict, seconds: float) -> str:
    from splatfix.core.runner import ProcessRunner
    from splatfix.fleet import slurm

    return slurm.apply(verdict, ProcessRunner(), seconds)


def _written(folder: Path, verdict: NodeVerdict, seconds: float) -> str:
    """Write it in a copy of this process: a network disk may be full, or hang."""

    def write() -> str:
        try:
            write_verdict(folder, verdict)
        except SplatfixError as error:
            return error.what
        return ""

    try:
        return in_copy(write, seconds)
    except TimeoutError:
        return f"{folder} takes no file within {seconds:.1f} s; the verdict was not written."
    except OSError as error:
        return f"The verdict was not written: {error}."


def _tell(problem: str) -> None:
    """On standard error: standard output is the caller's line."""
    if problem:
        show_message(problem)
