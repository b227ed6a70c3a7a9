"""Results of installing and reverting as data, and the listener that hears of an installation's progress."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from splatfix.core.proof import Rung
from splatfix.model.option import Plan
from splatfix.model.steps import InstallStep


class CachedWheel(Struct, frozen=True):
    """One wheel in the wheel cache."""

    key: str
    wheel: str
    size: int
    """Bytes."""
    digest: str
    identity: Mapping[str, str]
    """Everything beside the source that the key stands for."""
    source: str = ""
    """Where its source came from: repository and commit, else its folder."""
    created: str = ""
    """Day it was added (``2026-03-04``, UTC)."""

    @property
    def name(self) -> str:
        return self.wheel.partition("-")[0]


class InstalledItem(Struct, frozen=True):
    """One distribution that was installed."""

    subject: str
    version: str
    before: str
    """The version it replaced; "" when there was none."""
    modules: tuple[str, ...]
    """What was imported in the child process."""
    wheel: str
    seconds: float
    """To make the wheel."""
    proof: tuple[Rung, ...]
    up_to_date: bool = False
    """The same files were installed already and were left as they are."""


class Kept(Struct, frozen=True):
    """A file that was changed after splatfix had written it, and that undoing the installation replaced or removed."""

    path: str
    copy: str
    """Where it is kept as it was; in a dry run where it would be."""


class InstallOutcome(Struct, frozen=True):
    """A finished installation."""

    plan: Plan
    entry: str
    """Id in the environment's journal, for ``splatfix revert ID``."""
    items: tuple[InstalledItem, ...]
    log: str
    """Folder with the full build logs."""
    recovered: tuple[str, ...] = ()
    """Journal entries of interrupted runs that were undone first."""
    kept: tuple[Kept, ...] = ()
    """Files in them that somebody had changed since."""
    notes: tuple[str, ...] = ()
    """What was installed beside the items, and why the wheel cache was not used, where it was not."""
    seconds: float = 0.0


class Restored(Struct, frozen=True):
    """What a revert did to one distribution or checkout."""

    subject: str
    removed: str
    """The version that was removed; "" when nothing of it was there."""
    restored: str
    """The version that is back; "" when there was none before."""
    source: str = ""
    """A checkout whose edited files were restored, instead of a distribution."""
    incomplete: bool = False
    """Its installation never finished."""
    kept: tuple[Kept, ...] = ()
    """Its files that were changed since it was installed."""
    removed_origin: str = ""
    """What splatfix had made of the version that was removed (``built from /src for sm_90``); "" where nothing tells."""
    restored_origin: str = ""
    """The same of the version that is back."""
    notes: tuple[str, ...] = ()
    """What was left alone because it is not the installation's, a sentence each."""


def kept_of(items: Iterable[Restored]) -> tuple[Kept, ...]:
    """The changed files of all of them."""
    return tuple(kept for item in items for kept in item.kept)


class FetchedSubmodule(Struct, frozen=True):
    """One submodule that was fetched."""

    path: str
    address: str
    commit: str
    asked: bool = True
    """It is the commit that the checkout or the tables ask for; else the newest, because that is not known."""


class RevertOutcome(Struct, frozen=True):
    """A finished revert."""

    entry: str
    prefix: str
    items: tuple[Restored, ...]
    dry_run: bool = False
    """Nothing was changed: the items are what would be."""
    notes: tuple[str, ...] = ()


class InstallProgress:
    """Hears of an installation's progress; this one ignores it."""

    def begin(self, step: InstallStep, number: int, total: int, log: str = "") -> None:
        """An step starts, the ``number``-th of ``total``; ``log`` is the file that its output goes to."""

    def doing(self, step: InstallStep, text: str) -> None:
        """What the step is working on now, such as the file being compiled; called from several threads."""

    def end(self, step: InstallStep, result: str) -> None:
        """The step is done; ``result`` says in a few words what it showed."""
