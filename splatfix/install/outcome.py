"""What an installation came to, as data: what was installed, and how far up the ladder of proof it got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from splatfix.core.proof import Rung
from splatfix.plan.plan import Plan


@dataclass(frozen=True)
class CachedWheel:
    """One wheel in the wheel cache."""

    key: str
    wheel: str
    size: int
    digest: str
    identity: Mapping[str, str]
    """What the key stands for, in words."""
    source: str = ""
    """Where its source came from: repository and commit, else its folder; "" where an older splatfix kept it."""
    kept: str = ""
    """Day it was put there (``2026-03-04``, UTC)."""

    @property
    def name(self) -> str:
        """The distribution, as its file calls it."""
        return self.wheel.partition("-")[0]


@dataclass(frozen=True)
class InstalledItem:
    """One distribution that was installed."""

    subject: str
    version: str
    before: str
    """The version it took the place of; "" when there was none."""
    modules: tuple[str, ...]
    """What was imported in the child process."""
    wheel: str
    seconds: float
    """To make the wheel."""
    proof: tuple[Rung, ...]
    already: bool = False
    """It was installed already, byte for byte, and was left as it is."""


@dataclass(frozen=True)
class Outcome:
    """A finished installation."""

    plan: Plan
    entry: str
    """Id in the environment's journal; ``splatfix revert ID`` takes it back."""
    items: tuple[InstalledItem, ...]
    log: str
    """Folder with the full build logs."""
    recovered: tuple[str, ...] = ()
    """Journal entries of dead processes that were put back first."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Restored:
    """What a revert did to one distribution."""

    subject: str
    removed: str
    """The version that was taken out; "" when nothing of it was there."""
    restored: str
    """The version that is back; "" when there was none before."""
    source: str = ""
    """A checkout whose edited files are back as they were, instead of a distribution."""
    begun: bool = False
    """Its installation never came to its end, so that where nothing was there nobody else took it out."""


@dataclass(frozen=True)
class RevertOutcome:
    """A finished revert."""

    entry: str
    prefix: str
    items: tuple[Restored, ...]
    dry_run: bool = False
    """Nothing was changed: the items are what would be."""
