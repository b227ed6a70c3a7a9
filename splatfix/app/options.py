"""What ``diagnose`` and ``install --why`` share: the options of a machine, the container lanes among them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from splatfix.context import Goal

if TYPE_CHECKING:
    from splatfix.checks import Finding
    from splatfix.facts import Facts
    from splatfix.plan import Lane, Ways


def options_for(aim: Goal, facts: Facts) -> Ways:
    """The ranked options, the container lanes among them."""
    from splatfix.plan import find_ways

    return find_ways(aim, facts, _lanes())


def options_after(
    findings: Sequence[Finding],
    targets: tuple[str, ...],
    facts: Facts,
    repo: Path | None = None,
) -> Ways | None:
    """The options after a diagnosis, with the advice that answers its failures; None where nothing failed.

    Args:
        repo: the checkout that was looked at, whose extensions are to be installed.
    """
    from splatfix.checks import Status

    if not any(item.status is Status.FAIL for item in findings):
        return None
    from splatfix.plan import Request, aim_at, ways_out_of

    aim = Goal(targets)
    if repo is not None and is_installable(repo):
        aim = aim_at(Request((str(repo),), targets), facts, source=shlex.quote(str(repo)))
    return ways_out_of(findings, aim, facts, _lanes())


def checkout_of(sources: Sequence[str]) -> Path | None:
    """The one folder that was named, to be read as ``diagnose --repo`` reads it, so that both judge it alike."""
    folder = Path(sources[0]).expanduser() if len(sources) == 1 else None
    return folder if folder and folder.is_dir() and is_installable(folder) else None


def is_installable(repo: Path) -> bool:
    """``splatfix install`` takes this folder, complete or not; false for a folder that only contains other things."""
    from splatfix.core.errors import SplatfixError
    from splatfix.plan.checkout import sources_in

    try:
        sources_in((str(repo),))
    except SplatfixError as error:
        return error.code not in ("not-an-extension", "not-a-checkout", "no-extension-of-its-own")
    return True


def _lanes() -> tuple[Lane, ...]:
    from splatfix.containers import load_lanes
    from splatfix.plan import Lane

    return tuple(Lane(lane.name, lane.torch, lane.gpu) for lane in load_lanes().values())
