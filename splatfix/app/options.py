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


def options_after(
    findings: Sequence[Finding],
    targets: tuple[str, ...],
    facts: Facts,
    repo: Path | None = None,
) -> Options | None:
    """The options after a diagnosis, with the advice that answers its failures; None where nothing failed.

    Args:
        repo: the checkout that was looked at, whose extensions are to be installed.
    """
    from splatfix.checks import Status

    if not any(item.status is Status.FAIL for item in findings):
        return None
    from splatfix.plan import Request, advised_options, goal_of

    goal = Goal(targets)
    if repo is not None and is_installable(repo):
        goal = goal_of(Request((str(repo),), targets), sources=(str(repo),), checkout=facts.checkout.value)
    return advised_options(findings, make_context(facts, goal), _lanes())


def checkout_of(sources: Sequence[str]) -> Path | None:
    """The one folder that was named, to be read as ``diagnose --repo`` reads it, so that both judge it alike."""
    folder = Path(sources[0]).expanduser() if len(sources) == 1 else None
    return folder if folder and folder.is_dir() and is_installable(folder) else None


def is_installable(repo: Path) -> bool:
    """``splatfix install`` takes this folder, complete or not; false for a folder that only contains other things."""
    from splatfix.core.errors import Problem
    from splatfix.plan.checkout import sources_in

    found = sources_in((str(repo),))
    other = ("not-an-extension", "not-a-checkout", "no-extension-of-its-own")
    return not (isinstance(found, Problem) and found.code in other)


def _lanes() -> tuple[Lane, ...]:
    from splatfix.containers import load_lanes
    from splatfix.plan import Lane

    return tuple(Lane(lane.name, lane.torch, lane.gpu) for lane in load_lanes().values())
