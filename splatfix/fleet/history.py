"""What is kept of a node between two verdicts, so that one bad moment does not drain it and one good one does not return it."""

from __future__ import annotations

from pathlib import Path

from splatfix.core.codec import CodecError, from_json, to_json
from splatfix.core.data import dataclass, replace
from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json, write_json
from splatfix.fleet.policy import GatePolicy
from splatfix.fleet.verdict import Previous, State


@dataclass(frozen=True)
class History:
    """Of one node."""

    state: State
    since: str
    """When the state was first seen without another in between (UTC, ISO 8601)."""
    count: int = 1
    """How often in a row."""
    bad: int = 0
    """Failing verdicts since the last good one; those that are unknown count as neither."""
    good: int = 0
    drained: bool = False
    reason: str = ""
    """Why it was drained."""

    @property
    def previous(self) -> Previous:
        """As the next verdict tells it."""
        return Previous(self.state, self.since, self.count)


def next_of(before: History | None, state: State, reason: str, now: str, policy: GatePolicy) -> History:
    """The history with one more verdict in it."""
    after = before or History(state, now, count=0)
    if after.state is not state:
        after = replace(after, state=state, since=now, count=0)
    after = replace(after, count=after.count + 1)
    if state is State.UNKNOWN:
        return after
    if state is State.FAIL:
        after = replace(after, bad=after.bad + 1, good=0, reason=reason)
        return replace(after, drained=after.drained or after.bad >= policy.bad)
    after = replace(after, bad=0, good=after.good + 1)
    if after.drained and after.good < policy.good:
        return after
    return replace(after, drained=False, reason="")


def read_history(path: Path) -> tuple[History | None, str]:
    """What was kept, None where nothing was; and why it could not be read, or "". A torn file is as none: it is counted anew."""
    if not path.exists():
        return None, ""
    try:
        return from_json(History, read_json(path, "what splatfix gate keeps")), ""
    except SplatfixError as error:
        return None, error.what
    except CodecError as error:
        return None, f"{path}: {error}"


def write_history(path: Path, history: History) -> str:
    """Keep it; why that is not possible, or ""."""
    try:
        write_json(path, to_json(history))
    except SplatfixError as error:
        return error.what
    return ""
