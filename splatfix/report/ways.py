"""Renders the ways out: as a JSON document, whole for ``install --dry-run --why``, and in a few lines for ``diagnose``."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from splatfix.core.codec import to_json
from splatfix.resolve.ways import ByHand, Step, Ways


def ways_part(ways: Ways) -> dict[str, Any]:
    """What the documents of ``install --dry-run --why`` and ``diagnose`` hold under ``ways``."""
    made: dict[str, Any] = to_json(ways)
    for row, plan in zip(made["plans"], ways.plans, strict=True):
        row["by_hand"] = plan.by_hand
        for step_row, step in zip(row["steps"], plan.steps, strict=True):
            step_row["text"] = step.describe()
    return made


def show_ways(console: Console, ways: Ways) -> None:
    """Every plan with its steps, reasons and what it can prove; then every road that is shut, with why."""
    goal = ", ".join(ways.targets) or "no GPU named"
    what = f": {', '.join(ways.subjects)}" if ways.subjects else ""
    console.print(
        f"[bold]Ways out[/] for this machine ({escape(goal + what)}), the least invasive first",
        soft_wrap=True,
    )
    if not ways.plans:
        console.print("  none: what stands against each road is below")
    for number, plan in enumerate(ways.plans, 1):
        console.print(f"  [bold]{number}. {escape(plan.title)}[/]", soft_wrap=True)
        for step in plan.steps:
            _step(console, step)
        for reason in plan.reasons:
            console.print(f"       [dim]because[/] {escape(reason.text)}", soft_wrap=True)
        for text in plan.unsure:
            console.print(f"       [magenta]not known[/] {escape(text)}", soft_wrap=True)
        console.print(
            f"       [dim]can be shown here:[/] {', '.join(r.value for r in plan.can_prove)}", soft_wrap=True
        )
        for why in dict.fromkeys(limit.why for limit in plan.cannot_prove):
            rungs = ", ".join(limit.rung.value for limit in plan.cannot_prove if limit.why == why)
            console.print(f"       [dim]cannot:[/] {rungs} [dim]({escape(why)})[/]", soft_wrap=True)
    if ways.rejected:
        console.print("[bold]Shut roads[/]")
        for road in ways.rejected:
            console.print(f"  {escape(road.what)}: [dim]{escape(road.why)}[/]", soft_wrap=True)
    for note in ways.notes:
        console.print(f"[yellow]note[/] {escape(note)}", soft_wrap=True)


def show_briefly(console: Console, ways: Ways, command: str) -> None:
    """The first way with its steps, the others by title, and the command that shows all of it."""
    if not ways.plans:
        return
    first, *others = ways.plans
    console.print(f"\n[bold]Way out[/]: {escape(first.title)}", soft_wrap=True)
    for step in first.steps:
        _step(console, step)
    if others:
        console.print(f"  [dim]or:[/] {escape('; '.join(item.title for item in others))}", soft_wrap=True)
    console.print(f"  [dim]all of them, with reasons: {escape(command)}[/]", soft_wrap=True)


def _step(console: Console, step: Step) -> None:
    console.print(f"     [cyan]→[/] {escape(step.describe())}", soft_wrap=True)
    for command in step.commands if isinstance(step, ByHand) else ():
        console.print(f"       [cyan]$ {escape(command)}[/]", soft_wrap=True)
