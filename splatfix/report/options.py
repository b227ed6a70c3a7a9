"""Renders the ways out: as a JSON document, whole for ``install --dry-run --why``, and in a few lines for ``diagnose``."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from splatfix.context.model import Rejected
from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.plan.ways import ByHand, Road, Ways, WayStep
from splatfix.report.console import paragraph, prose, show_step


def ways_part(ways: Ways) -> dict[str, Any]:
    """What the documents of ``install --dry-run --why`` and ``diagnose`` hold under ``ways``."""
    made: dict[str, Any] = to_json(ways)
    for row, plan in zip(made["plans"], ways.plans, strict=True):
        row["by_hand"] = plan.by_hand
        for step_row, step in zip(row["steps"], plan.steps, strict=True):
            step_row["text"] = step.describe()
    return made


def show_options(console: Console, ways: Ways) -> None:
    """Every plan with its steps, reasons and what it can prove; then every road that is shut, with why."""
    goal = ", ".join(ways.targets) or "no GPU named"
    what = f": {', '.join(ways.subjects)}" if ways.subjects else ""
    prose(
        console, "", f"[bold]Ways out[/] for this machine ({escape(goal + what)}), the least invasive first"
    )
    if not ways.plans:
        console.print("  none: what stands against each road is below")
    for number, plan in enumerate(ways.plans, 1):
        prose(console, f"  [bold]{number}.[/] ", f"[bold]{escape(plan.title)}[/]")
        for step in plan.steps:
            _step(console, step)
        for reason in plan.reasons:
            prose(console, "       [dim]because[/] ", escape(reason.text))
        for text in plan.unsure:
            prose(console, "       [magenta]not known[/] ", escape(text))
        prose(console, "       [dim]can be shown here:[/] ", ", ".join(r.value for r in plan.can_prove))
        for why in dict.fromkeys(limit.why for limit in plan.cannot_prove):
            rungs = ", ".join(limit.rung.value for limit in plan.cannot_prove if limit.why == why)
            prose(console, "       [dim]cannot:[/] ", f"{rungs} [dim]({escape(why)})[/]")
    if ways.rejected:
        console.print("[bold]Shut roads[/]")
        for road in ways.rejected:
            a_road(console, road)
    for note in ways.notes:
        prose(console, "[yellow]note[/] ", escape(note))


def show_suggestion(console: Console, options: Ways, why: Step | None, *, windows: bool = False) -> None:
    """The advised option with its steps, the alternatives by title, what else is needed, and the command that explains."""
    advice = options.advice
    if advice is None:
        return
    if advice.plan is not None:
        prose(console, "[bold]Suggested fix:[/] ", escape(advice.plan.title))
        for step in advice.plan.steps:
            _step(console, step)
        # an option above it would leave the failures as they are; where what is here serves, none below it is needed
        below = options.plans[options.plans.index(advice.plan) + 1 :]
        others = () if advice.plan.road is Road.KEEP else below
        if others:
            prose(console, "  [dim]Alternatives:[/] ", escape("; ".join(item.title for item in others)))
    for number, item in enumerate(advice.besides):
        opening = "Also needed" if advice.plan is not None or number else "Suggested fix"
        prose(console, f"[bold]{opening}:[/] ", escape(item.text))
        for line in item.commands:
            console.print(f"     [cyan]$ {escape(line)}[/]", soft_wrap=True)
    if options.plans and why:
        show_step(console, why, indent=2, windows=windows)


def a_road(console: Console, road: Rejected) -> None:
    """A road that is not taken, and why; the reason stands in under the road."""
    paragraph(console, f"{escape(road.what)}: [dim]{escape(road.why)}[/]", first=2, then=4)


def _step(console: Console, step: WayStep) -> None:
    prose(console, "     [cyan]→[/] ", escape(step.describe()))
    for command in step.commands if isinstance(step, ByHand) else ():
        console.print(f"       [cyan]$ {escape(command)}[/]", soft_wrap=True)
