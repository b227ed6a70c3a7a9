"""What ``diagnose`` and ``install`` share about the ways out: the lanes there are, and when there is something to say."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from splatfix.checks import Finding
    from splatfix.facts import Facts
    from splatfix.resolve import Aim, Ways

# Findings of these families are about the machine and what is installed; a road of the resolver may mend them.
_FAMILIES = ("gpu", "driver", "torch", "toolkit", "compiler", "extension")


def ways_for(aim: Aim, facts: Facts) -> Ways:
    """The ranked ways out, the container lanes among them."""
    from splatfix.containers import load_lanes
    from splatfix.resolve import Lane, find_ways

    lanes = tuple(Lane(lane.name, lane.torch, lane.gpu) for lane in load_lanes().values())
    return find_ways(aim, facts, lanes)


def ways_after(
    findings: Iterable[Finding],
    families: dict[str, str],
    targets: tuple[str, ...],
    facts: Facts,
    repo: Path | None = None,
) -> Ways | None:
    """The ways out of what was found; None where nothing failed that a way out could mend.

    Args:
        repo: the checkout that was looked at; its extensions are then meant.
    """
    from splatfix.checks import Status

    ill = any(item.status is Status.FAIL and families.get(item.code) in _FAMILIES for item in findings)
    if not ill:
        return None
    from splatfix.resolve import Aim, Request, aim_at

    if repo is None:
        return ways_for(Aim(targets), facts)
    return ways_for(aim_at(Request((str(repo),), targets), facts, source=shlex.quote(str(repo))), facts)


def why_command(
    targets: Iterable[str], repo: Path | None, facts_file: Path | None, python: str | None
) -> str:
    """The command that shows all ways out of what was just diagnosed."""
    words = ["splatfix install", *([shlex.quote(str(repo))] if repo else []), "--dry-run --why"]
    words += [f"--target {name}" for name in targets]
    words += [f"--facts {shlex.quote(str(facts_file))}"] if facts_file else []
    words += [f"--python {shlex.quote(python)}"] if python else []
    return " ".join(words)
