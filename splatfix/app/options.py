"""What ``diagnose`` and ``install --why`` share: the options of a machine, the container lanes among them."""

from collections.abc import Sequence
from pathlib import Path

from splatfix.containers import GpuNeed, load_lanes
from splatfix.context import Context
from splatfix.model import Finding, Status
from splatfix.plan import (
    NO_SOURCES,
    Case,
    LaneSummary,
    Options,
    SourceSummary,
    advised_options,
    rank,
    summarise,
)
from splatfix.plan.checkout import absolute, many_things


def options_for(context: Context) -> Options:
    """Rank the options of a machine, the container lanes among them."""
    return rank(Case(context=context, lanes=lanes()))


def options_after(
    findings: Sequence[Finding], context: Context, sources: SourceSummary = NO_SOURCES
) -> Options | None:
    """Rank the options after a diagnosis, with the advice that answers its failures; None where nothing failed."""
    if not any(finding.status is Status.FAIL for finding in findings):
        return None
    return advised_options(findings, Case(context=context, lanes=lanes(), sources=sources))


def sources_of_checkout(repo: Path | None, context: Context) -> SourceSummary:
    """Read what ``splatfix install`` would make of a checkout, or why it rejects it."""
    if repo is None:
        return NO_SOURCES
    named = absolute((str(repo),))
    return summarise(named, context, named=named)


def checkout_of(sources: Sequence[str]) -> Path | None:
    """Return the one folder that was named, to be read as ``diagnose --repo`` reads it, so that both judge it alike."""
    if len(sources) != 1:
        return None
    folder = Path(sources[0]).expanduser()
    if folder.is_dir() and many_things(folder.resolve()) is None:
        return folder
    return None


def lanes() -> tuple[LaneSummary, ...]:
    """Return the container lanes as the ranking needs them."""
    every = load_lanes().values()
    return tuple(LaneSummary(lane.name, lane.torch, lane.gpu is GpuNeed.REQUIRED) for lane in every)
