"""A certificate as data: criteria with measured values, and the ladder of what was really shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from splatfix.core.proof import Rung


class Outcome(str, Enum):
    """What a criterion says. Only ``met`` and ``failed`` are judgements; ``not-measured`` is neither."""

    MET = "met"
    FAILED = "failed"
    NOT_MEASURED = "not-measured"


@dataclass(frozen=True)
class Criterion:
    """One thing that a working stack must show, with what was measured."""

    code: str
    """Kebab-case and stable."""
    outcome: Outcome
    measured: str
    required: str
    why: str = ""
    """For a failure: what that means in practice."""


@dataclass(frozen=True)
class KernelCheck:
    """One kernel against its float64 reference: errors of value and gradient beside what is allowed."""

    name: str
    implementation: str
    outcome: Outcome
    value_error: float | None
    value_allowed: float
    gradient_error: float | None
    gradient_allowed: float | None
    detail: str = ""
    kind: str = ""
    """``ours``, ``swap`` (a drop-in of splatfix's), ``native`` (compiled), ``python``; "" where nothing is installed."""

    @property
    def native_not_run(self) -> bool:
        """An installed extension of which nothing was seen: only a GPU can show what it computes."""
        return self.kind == "native" and self.outcome is Outcome.NOT_MEASURED


@dataclass(frozen=True)
class SceneRun:
    """One scene trained in the target environment, and its criteria."""

    scene: str
    criteria: tuple[Criterion, ...]
    seconds: float
    result: Mapping[str, Any] = field(default_factory=dict)
    """The trainer's own ``result.json``; empty when it left none."""
    pictures: tuple[str, ...] = ()
    """Held-out views beside the truth, as paths relative to the report."""
    log: str = ""
    """The trainer's output, as a path relative to the report."""
    unreadable: str = ""
    """Why the user's own scene cannot be read, in the loader's words: it says nothing about the environment."""

    @property
    def passed(self) -> bool:
        """No criterion failed."""
        return all(item.outcome is not Outcome.FAILED for item in self.criteria)


@dataclass(frozen=True)
class Skipped:
    """A scene that was looked for and not trained."""

    scene: str
    reason: str


@dataclass(frozen=True)
class Certificate:
    """The outcome of one certification."""

    granted: bool
    claim: str
    """One sentence that claims exactly what was shown."""
    reasons: tuple[str, ...]
    """Why it was refused; empty when it was granted, or when it could not be determined."""
    suite: str
    renderer: str
    device: str
    proof: tuple[Rung, ...]
    kernels: tuple[KernelCheck, ...]
    scenes: tuple[SceneRun, ...]
    environment: Mapping[str, str]
    """The versions it holds for."""
    issued: str
    seconds: float
    skipped: tuple[Skipped, ...] = ()
    """Scenes that were looked for and not trained: nothing was shown on them."""

    @property
    def unreadable(self) -> tuple[Skipped, ...]:
        """Scenes that are there and cannot be read, with the loader's words."""
        return tuple(Skipped(run.scene, run.unreadable) for run in self.scenes if run.unreadable)

    @property
    def undetermined(self) -> bool:
        """Nothing failed, but a scene could not be read: neither granted nor refused."""
        return not self.granted and not self.reasons
