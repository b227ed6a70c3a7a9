"""What ``diagnose`` and ``install --why`` share: the options of a machine, the container lanes among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from splatfix.context import Context

if TYPE_CHECKING:
    from splatfix.checks import Finding
    from splatfix.plan import Lane, Options, SourceSummary


def options_for(context: Context, sources: SourceSummary, keep: tuple[str, ...]) -> Options:
    """The ranked options, the container lanes among them."""
    from splatfix.plan import find_options

    return find_options(context, _lanes(), sources, keep)


def options_after(
    findings: Sequence[Finding], context: Context, sources: SourceSummary | None = None
) -> Options | None:
    """The options after a diagnosis, with the advice that answers its failures; None where nothing failed."""
    from splatfix.checks import Status

    if not any(item.status is Status.FAIL for item in findings):
        return None
    from splatfix.plan import NO_SOURCES, advised_options

    return advised_options(findings, context, _lanes(), sources or NO_SOURCES)


def checkout_of(sources: Sequence[str]) -> Path | None:
    """The one folder that was named, to be read as ``diagnose --repo`` reads it, so that both judge it alike."""
    from splatfix.plan.checkout import whole_disk

    folder = Path(sources[0]).expanduser() if len(sources) == 1 else None
    return folder if folder and folder.is_dir() and not whole_disk(folder.resolve()) else None


def _lanes() -> tuple[Lane, ...]:
    from splatfix.containers import GpuUse, load_lanes
    from splatfix.plan import Lane

    return tuple(Lane(lane.name, lane.torch, lane.gpu is GpuUse.REQUIRED) for lane in load_lanes().values())
