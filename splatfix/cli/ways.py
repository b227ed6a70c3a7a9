"""What ``diagnose`` and ``install`` share about the ways out: the lanes there are, and when there is something to say."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from splatfix.checks import Finding
    from splatfix.facts import Facts
    from splatfix.plan import Aim, Lane, Ways


def ways_for(aim: Aim, facts: Facts) -> Ways:
    """The ranked ways out, the container lanes among them."""
    from splatfix.plan import find_ways

    return find_ways(aim, facts, _lanes())


def _lanes() -> tuple[Lane, ...]:
    from splatfix.containers import load_lanes
    from splatfix.plan import Lane

    return tuple(Lane(lane.name, lane.torch, lane.gpu) for lane in load_lanes().values())


def ways_after(
    findings: Sequence[Finding],
    families: dict[str, str],
    targets: tuple[str, ...],
    facts: Facts,
    repo: Path | None = None,
) -> Ways | None:
    """The ways out of what was found, with the advice that answers the failures; None where nothing failed.

    Args:
        repo: the checkout that was looked at; its extensions are then meant.
    """
    from splatfix.checks import Status

    if not any(item.status is Status.FAIL for item in findings):
        return None
    from splatfix.plan import Aim, Request, aim_at, ways_out_of

    aim = Aim(targets)
    if repo is not None and _can_be_installed(repo):
        aim = aim_at(Request((str(repo),), targets), facts, source=shlex.quote(str(repo)))
    return ways_out_of(findings, families, aim, facts, _lanes())


def checkout_of(sources: Sequence[str]) -> Path | None:
    """The one folder that was named, to be read as ``diagnose --repo`` reads it, so that both say the same of it."""
    from pathlib import Path

    folder = Path(sources[0]).expanduser() if len(sources) == 1 else None
    return folder if folder and folder.is_dir() and _can_be_installed(folder) else None


def _can_be_installed(repo: Path) -> bool:
    """It is something that ``splatfix install`` takes, be it incomplete; no folder in which other things lie."""
    from splatfix.core.errors import SplatfixError
    from splatfix.plan.checkout import sources_in

    try:
        sources_in((str(repo),))
    except SplatfixError as error:
        return error.code not in ("not-an-extension", "not-a-checkout", "no-extension-of-its-own")
    return True


def why_command(
    targets: Iterable[str], repo: Path | None, facts_file: Path | None, python: str | None
) -> str:
    """The command that shows all ways out of what was just diagnosed."""
    named = [shlex.quote(str(repo))] if repo and _can_be_installed(repo) else []
    words = ["splatfix install", *named, "--dry-run --why"]
    words += [f"--target {name}" for name in targets]
    words += [f"--facts {shlex.quote(str(facts_file))}"] if facts_file else []
    words += [f"--python {shlex.quote(python)}"] if python else []
    return " ".join(words)
