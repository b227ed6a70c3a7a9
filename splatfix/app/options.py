"""What ``diagnose`` and ``install --why`` share: the options of a machine, the container lanes among them."""

from collections.abc import Sequence

from splatfix.containers import GpuNeed, load_lanes
from splatfix.context import Context
from splatfix.model import Finding, Status
from splatfix.plan import NO_SOURCES, Case, LaneSummary, Options, SourceSummary, advised_options


def options_after(
    findings: Sequence[Finding], context: Context, sources: SourceSummary = NO_SOURCES
) -> Options | None:
    """Rank the options after a diagnosis, with the advice that answers its failures; None where nothing failed."""
    if not any(finding.status is Status.FAIL for finding in findings):
        return None
    return advised_options(findings, Case(context=context, lanes=lanes(), sources=sources))


def lanes() -> tuple[LaneSummary, ...]:
    """Return the container lanes as the ranking needs them."""
    every = load_lanes().values()
    return tuple(LaneSummary(lane.name, lane.torch, lane.gpu is GpuNeed.REQUIRED) for lane in every)
