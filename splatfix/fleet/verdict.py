"""The verdict of one node as data, and its file: one a node in a folder that many nodes write into at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from urllib.parse import quote

from splatfix.core.codec import to_json
from splatfix.core.data import dataclass
from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json, write_json
from splatfix.core.redact import redacted

SCHEMA_VERSION = 1
MOST_VERDICT = 1 << 20
"""Bytes of a verdict's file. One with a message of every check of a node has some 20 KiB."""
_LONGEST_NAME = 200
"""Bytes of a file's name without its digest and ending; a file system takes 255."""
_LONGEST_LINE = 300
"""Characters of a message or of evidence."""


class State(str, Enum):
    """What a check says of a node, and what all of them say together. Unknown is neither good nor bad."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Action(str, Enum):
    """What the policy makes of a check that failed."""

    DRAIN = "drain"
    WARN = "warn"
    NONE = "none"


@dataclass(frozen=True)
class CheckVerdict:
    """One finding, and what the policy makes of it."""

    code: str
    """Of the check, as ``splatfix diagnose --list`` has it."""
    state: State
    action: Action
    """``none`` for what is ok or unknown."""
    message: str
    """One line."""
    evidence: str = ""
    """The facts it stands on, in short."""
    remedy: str = ""
    """The first command that would mend it; "" where there is none."""


@dataclass(frozen=True)
class Alike:
    """What machines are grouped by: those alike in all of it fail and are mended alike. None: not known, or not looked at."""

    gpus: tuple[str, ...] = ()
    """Names of the GPUs, in the order of their indices."""
    driver: str | None = None
    cuda: str | None = None
    """Highest CUDA level of the driver."""
    torch: str | None = None
    kernel: str | None = None
    os: str | None = None
    python: str | None = None


@dataclass(frozen=True)
class Policy:
    """The policy that judged."""

    name: str
    digest: str
    """The first twelve digits of the SHA-256 of its file."""


@dataclass(frozen=True)
class Previous:
    """What was said of the node before."""

    state: State
    since: str
    """When this state was first seen without another in between (UTC, ISO 8601)."""
    count: int
    """How often in a row it was seen."""


@dataclass(frozen=True)
class NodeVerdict:
    """What the gate says of a node: the content of its file."""

    node: str
    machine: str
    """Tells machines of one name apart: twelve digits of a digest of the machine's id and the name. The id is not in it."""
    started: str
    """UTC, ISO 8601, by the node's own clock."""
    finished: str
    splatfix: str
    """Its version."""
    policy: Policy
    state: State
    """The worst of the checks: ``fail`` where one that drains has failed, ``warn``, ``unknown``, else ``ok``."""
    drain: bool
    """The node is to take no work: it failed often enough, and has not been well often enough since."""
    reason: str
    """One line for whoever drains it; of what was found first where nothing is wrong now and it is not returned yet; or ""."""
    checks: tuple[CheckVerdict, ...]
    alike: Alike
    previous: Previous | None = None
    redacted: bool = True
    schema_version: int = SCHEMA_VERSION
    kind: str = "verdict"


def state_of(checks: Iterable[CheckVerdict]) -> State:
    """The worst that checks say; a failure that does not drain is a warning."""
    worst = State.OK
    for check in checks:
        if check.action is Action.DRAIN:
            return State.FAIL
        if check.action is Action.WARN:
            worst = State.WARN
        elif check.state is State.UNKNOWN and worst is State.OK:
            worst = State.UNKNOWN
    return worst


def reason_of(checks: Sequence[CheckVerdict], state: State) -> str:
    """What is wrong, or not known, in one line: the code first, for those who read only the beginning."""
    actions = {State.FAIL: Action.DRAIN, State.WARN: Action.WARN}
    decisive = [check for check in checks if check.action is actions.get(state)]
    if state is State.UNKNOWN:
        decisive = [check for check in checks if check.state is State.UNKNOWN]
    if not decisive:
        return ""
    reason = f"{decisive[0].code}: {decisive[0].message}"
    others = list(dict.fromkeys(check.code for check in decisive[1:]))
    if others:
        reason += f" Also {', '.join(others)}."
    return reason


def shortened(text: str) -> str:
    """One line of some hundred characters."""
    line = " ".join(text.split())
    if len(line) > _LONGEST_LINE:
        return f"{line[: _LONGEST_LINE - 3]}..."
    return line


def write_verdict(folder: Path, verdict: NodeVerdict) -> Path:
    """Write a node's verdict over the one it wrote before, whole or not at all; returns its file.

    Raises:
        SplatfixError: ``cannot-write`` (exit code 3).
    """
    path = file_of(folder, verdict)
    write_json(path, to_json(redacted(verdict)))
    return path


def file_of(folder: Path, verdict: NodeVerdict) -> Path:
    """``NODE.json``; ``NODE-MACHINE.json`` where that is another machine's (names differ by case alone, or two have the same)."""
    path = verdict_file(folder, verdict.node)
    if _machine_of(path) in (None, verdict.machine):
        return path
    return path.with_name(f"{path.stem}-{verdict.machine}.json")


def verdict_file(folder: Path, node: str) -> Path:
    """Where the verdict of a node is, as long as no other machine has its name."""
    name = quote(node, safe="", errors="surrogatepass")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(node.encode(errors="surrogatepass")).hexdigest()
        name = f"{name[:_LONGEST_NAME]}-{digest[:12]}"
    return folder / f"{name}.json"


def _machine_of(path: Path) -> str | None:
    """Whose file it is; None where there is none, or nobody can tell."""
    try:
        document = read_json(path, "a verdict of splatfix", MOST_VERDICT)
    except SplatfixError:
        return None
    machine = document.get("machine") if isinstance(document, dict) else None
    return machine if isinstance(machine, str) else None
