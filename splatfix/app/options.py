"""What ``diagnose`` and ``install --why`` share: the options of a machine, the container lanes among them."""

from collections.abc import Sequence
from pathlib import Path

from splatfix.containers import GpuNeed, load_lanes
from splatfix.context import Context
from splatfix.model import Facts, Finding, Status
from splatfix.plan import (
    NO_SOURCES,
    LaneSummary,
    Options,
    SourceSummary,
    advised_options,
    find_options,
    summarise,
)
from splatfix.plan.checkout import absolute, many_things


def options_for(context: Context, sources: SourceSummary, keep: tuple[str, ...]) -> Options:
    """The ranked options, the container lanes among them."""
    return find_options(context, _lanes(), sources, keep)


def options_after(
    findings: Sequence[Finding], context: Context, sources: SourceSummary = NO_SOURCES
) -> Options | None:
    """The options after a diagnosis, with the advice that answers its failures; None where nothing failed."""
    if not any(finding.status is Status.FAIL for finding in findings):
        return None
    return advised_options(findings, context, _lanes(), sources)


def sources_of_checkout(repo: Path | None, facts: Facts) -> SourceSummary:
    """What ``splatfix install`` would make of a checkout, or why it refuses it."""
    if repo is None:
        return NO_SOURCES
    named = absolute((str(repo),))
    return summarise(named, facts, named=named)


def checkout_of(sources: Sequence[str]) -> Path | None:
    """The one folder that was named, to be read as ``diagnose --repo`` reads it, so that both judge it alike."""
    if len(sources) != 1:
        return None
    folder = Path(sources[0]).expanduser()
    if folder.is_dir() and many_things(folder.resolve()) is None:
        return folder
    return None


def _lanes() -> tuple[LaneSummary, ...]:
    lanes = []
    for lane in load_lanes().values():
        lanes.append(LaneSummary(lane.name, lane.torch, lane.gpu is GpuNeed.REQUIRED))
    return tuple(lanes)
