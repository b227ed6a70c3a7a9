"""What ``diagnose`` and ``install --why`` share: the options of a machine, the container lanes among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from splatfix.context import Context, Goal, make_context

if TYPE_CHECKING:
    from splatfix.checks import Finding
    from splatfix.facts import Facts
    from splatfix.plan import Lane, Options


def options_for(context: Context) -> Options:
    """The ranked options, the container lanes among them."""
    from splatfix.plan import find_options

    return find_options(context, _lanes())


def options_after(findings: Sequence[Finding], facts: Facts, goal: Goal) -> Options | None:
    """The options after a diagnosis, with the advice that answers its failures; None where nothing failed."""
    from splatfix.checks import Status

    if not any(item.status is Status.FAIL for item in findings):
        return None
    from splatfix.plan import advised_options

    return advised_options(findings, make_context(facts, goal), _lanes())


def goal_for(repo: Path | None, targets: tuple[str, ...], facts: Facts) -> Goal:
    """What is wanted of a checkout: what ``splatfix install`` would make of it, or why it refuses it."""
    from splatfix.plan import Request, goal_of

    if repo is None:
        return Goal(targets)
    return goal_of(Request((str(repo),), targets), facts, sources=(str(repo),))


def checkout_of(sources: Sequence[str]) -> Path | None:
    """The one folder that was named, to be read as ``diagnose --repo`` reads it, so that both judge it alike."""
    from splatfix.plan.checkout import whole_disk

    folder = Path(sources[0]).expanduser() if len(sources) == 1 else None
    return folder if folder and folder.is_dir() and not whole_disk(folder.resolve()) else None


def _lanes() -> tuple[Lane, ...]:
    from splatfix.containers import GpuUse, load_lanes
    from splatfix.plan import Lane

    return tuple(Lane(lane.name, lane.torch, lane.gpu is GpuUse.REQUIRED) for lane in load_lanes().values())
