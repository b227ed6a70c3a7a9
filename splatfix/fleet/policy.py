"""Which checks drain a node, which only warn, and after how many verdicts: a TOML file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from splatfix.core.codec import CodecError, from_json
from splatfix.core.data import dataclass, field
from splatfix.core.errors import SplatfixError
from splatfix.core.reading import Unread, read_text
from splatfix.core.toml import parse_toml
from splatfix.fleet.verdict import Policy

DEFAULT = Path(__file__).with_name("policy.toml")


@dataclass(frozen=True)
class Checks:
    """Codes or families of checks, by what a failure of theirs does."""

    drain: tuple[str, ...] = ()
    drain_on_warning: tuple[str, ...] = ()
    """Those of ``drain`` of which a warning is as bad as a failure."""
    warn: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        return (*self.drain, *self.drain_on_warning, *self.warn)


@dataclass(frozen=True)
class GatePolicy:
    """A policy file; ``policy.toml`` in this folder explains each field."""

    checks: Checks = field(default_factory=Checks)
    name: str = ""
    bad: int = 1
    good: int = 1
    gpus: int = 0


def read_policy(path: Path | None) -> tuple[GatePolicy, Policy]:
    """The policy of a file, or where none is named the default one, and how a verdict names it.

    Raises:
        SplatfixError: ``bad-policy`` (exit code 2).
    """
    file = path or DEFAULT
    text = read_text(file)
    if text is None or isinstance(text, Unread):
        raise SplatfixError.of("fleet.bad-policy", path=file, reason=text.reason if text else "there is none")
    try:
        policy = from_json(GatePolicy, parse_toml(text))
        _refuse_nonsense(policy)
    except (CodecError, ValueError) as error:
        raise SplatfixError.of("fleet.bad-policy", path=file, reason=error) from error
    return policy, Policy(policy.name or file.stem, hashlib.sha256(text.encode()).hexdigest()[:12])


def _refuse_nonsense(policy: GatePolicy) -> None:
    if min(policy.bad, policy.good) < 1 or policy.gpus < 0:
        raise ValueError("bad and good are 1 or more, gpus is 0 or more")
    if not policy.checks.named and not policy.gpus:
        raise ValueError("it names no checks")
    twice = {*policy.checks.drain, *policy.checks.drain_on_warning} & {*policy.checks.warn}
    if twice:
        raise ValueError(f"{', '.join(sorted(twice))} cannot both drain and warn")
