"""Renders what ``splatfix find`` found: every candidate with its verdict and reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.core.words import counted
from splatfix.report.console import escape, marked, prose, show_step
from splatfix.report.marks import Mark
from splatfix.wheels.model import Candidate, Search, Verdict

_MARKS = {
    Verdict.PROVEN: Mark.GOOD,
    Verdict.UNSUITED: Mark.BAD,
    Verdict.UNKNOWN: Mark.UNKNOWN,
    Verdict.NOT_READ: Mark.NONE,
}


def document(searches: Sequence[Search], targets: Sequence[str], torch: str, python: str) -> dict[str, Any]:
    """The content of the JSON document: each search with all of its candidates."""
    rows = [{**to_json(search), "verdict": search.verdict.value} for search in searches]
    return {"targets": list(targets), "torch": torch, "python": python, "searches": rows}


def show(
    console: Console,
    searches: Sequence[Search],
    targets: Sequence[str],
    steps: Sequence[Step],
    *,
    verbose: bool = False,
) -> None:
    """The verdict of each search, what was read of the proven wheel, then why the others will not do.

    Args:
        verbose: each candidate by itself; else those of one reason together.
    """
    for search in searches:
        _show_verdict(console, search, targets)
        several = len(search.asked) > 1
        groups: dict[tuple[Verdict, str], list[Candidate]] = {}
        for item in search.candidates:
            if item.verdict is not Verdict.PROVEN:
                groups.setdefault((item.verdict, item.wheel if verbose else item.reason), []).append(item)
        for (verdict, _), items in groups.items():
            more = f" [dim]and {len(items) - 1} more[/]" if len(items) > 1 else ""
            where = f" [dim]({escape(items[0].index)})[/]" if several else ""
            text = f"{escape(items[0].wheel)}{more}{where}: {escape(items[0].reason)}"
            marked(console, _MARKS[verdict], text)
        for index in search.unanswered:
            marked(console, Mark.UNKNOWN, f"{escape(index.index)} was not read: {escape(index.reason)}")
    for step in steps:
        show_step(console, step, indent=2)


def _show_verdict(console: Console, search: Search, targets: Sequence[str]) -> None:
    goal, name = ", ".join(targets), escape(search.name)
    where = ", ".join(search.asked) or "no index"
    best = search.best
    if best:
        marked(console, Mark.GOOD, f"[bold]{name}: {escape(best.wheel)}[/] is proven for {goal}", indent=0)
        prose(console, "  ", escape(best.address))
        for text in best.evidence:
            marked(console, Mark.GOOD, escape(text))
    elif search.verdict is Verdict.UNKNOWN:
        marked(console, Mark.UNKNOWN, f"[bold]{name}: not determined[/] for {goal} (in {where})", indent=0)
    elif not search.candidates:
        marked(console, Mark.BAD, f"[bold]no wheel of {name} is there[/] (in {where})", indent=0)
    else:
        number = counted(len(search.candidates), "wheel")
        marked(console, Mark.BAD, f"[bold]{name}: none of {number} suits[/] {goal} (in {where})", indent=0)
