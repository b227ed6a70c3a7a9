"""Merged certificates in words: for the terminal and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from splatfix.certify.model import Verdict
from splatfix.core.words import counted, few
from splatfix.report.console import escape, paragraph, prose, show_step
from splatfix.report.field_report import cell as markdown_cell
from splatfix.report.merging import Cell, Group, Listed, Merged
from splatfix.report.recorded import natural

KINDS: Mapping[Verdict, tuple[str, str]] = {
    Verdict.NOT_CERTIFIED: ("bad", "not certified"),
    Verdict.UNDETERMINED: ("unsure", "undetermined"),
    Verdict.REHEARSED: ("good", "rehearsed"),
    Verdict.CERTIFIED: ("good", "certified"),
}
"""How each verdict is shown, the one that matters most first."""
_MARKS = {"bad": "[bold red]✗[/]", "unsure": "[bold yellow]?[/]", "good": "[green]✓[/]"}
_SIGNS = {"bad": "✗", "unsure": "?", "good": "✓"}
_MOST_LINKS = 5
_MOST_LINES = 20


@dataclass(frozen=True)
class Table:
    """The cells of one stack."""

    torches: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[Cell | None, ...]], ...]
    """GPU, driver, and for each torch its cell."""


def tables(found: Merged) -> Iterator[tuple[str, Table]]:
    """The matrix as a table for each stack."""
    stacks: dict[str, list[Cell]] = {}
    for cell in found.cells:
        stacks.setdefault(cell.stack, []).append(cell)
    for stack, cells in stacks.items():
        torches = tuple(sorted({cell.torch for cell in cells}, key=natural))
        places = {(cell.gpu, cell.driver, cell.torch): cell for cell in cells}
        lines = dict.fromkeys((cell.gpu, cell.driver) for cell in cells)
        rows = tuple((*line, tuple(places.get((*line, torch)) for torch in torches)) for line in lines)
        yield (
            stack or "stack not recorded",
            Table(tuple(name or "torch not recorded" for name in torches), rows),
        )


def problem_words(group: Group) -> str:
    """``criterion loss-falls``."""
    return f"{group.kind} {group.code}"


def cause_words(group: Group) -> str:
    """The first cause that differs, in words that claim no more."""
    if group.part:
        return f"first differs from certified ones: {group.label} {group.value}"
    return "differs from no certified one in what was recorded before"


def name_of(entry: Listed) -> str:
    """A certificate by its report folder, or by its file where that has another name."""
    return re.sub(r"[/\\]certificate\.json\Z", "", entry.file)


def fix_words(group: Group) -> str:
    """The fix, and how many of the certificates advise it."""
    if not group.advised:
        return f"{group.fix.title} (none of these certificates has advice)"
    return f"{group.fix.title} (advised by {group.advised} of {len(group.certificates)})"


NO_CERTIFICATE = "Lanes without a certificate"


def show(
    console: Console,
    found: Merged,
    unreadable: Sequence[tuple[str, str]],
    page: str,
    refused: Sequence[tuple[str, str]] = (),
) -> None:
    """How many there are of each verdict, the groups with their fix, and what could not be read.

    Args:
        refused: lanes without a certificate, and why.
        page: where the HTML page is; "" where nothing was merged.
    """
    total = sum(found.verdicts.values())
    counts = ", ".join(
        f"{found.verdicts[verdict.value]} {words}"
        for verdict, (_, words) in KINDS.items()
        if found.verdicts[verdict.value]
    )
    paragraph(
        console, f"[bold]{counted(total, 'certificate')}[/]{': ' if counts else ''}{counts}", first=0, then=2
    )
    if page:
        prose(console, "  Matrix: ", escape(page))
    for group in found.groups[:_MOST_LINES]:
        kind = (
            "bad" if any(item.verdict is Verdict.NOT_CERTIFIED for item in group.certificates) else "unsure"
        )
        said = f"[bold]{escape(problem_words(group))}[/] in {counted(len(group.certificates), 'certificate')}"
        console.print()
        prose(console, f"{_MARKS[kind]} ", f"{said}: {escape(cause_words(group))}")
        if certified := few([name for name in group.certified_with if name]):
            prose(console, "    certified with: ", escape(certified))
        if group.in_common:
            prose(console, "    all of them: ", escape("; ".join(group.in_common)))
        prose(console, "    fix: ", escape(fix_words(group)))
        for step in group.fix.steps:
            show_step(console, step, indent=4)
        prose(console, "    ", f"[dim]{escape(few([name_of(item) for item in group.certificates], 3))}[/]")
    if len(found.groups) > _MOST_LINES:
        console.print(f"\n{counted(len(found.groups) - _MOST_LINES, 'group')} more in the page.")
    if refused:
        console.print(f"\n[bold]{NO_CERTIFICATE}[/]")
    for lane, reason in refused:
        prose(console, "  [bold yellow]?[/] ", f"{escape(lane)}: {escape(reason)}")
    if unreadable:
        console.print(f"\n[bold]Not read[/] ({counted(len(unreadable), 'file')})")
    for path, reason in unreadable[:_MOST_LINES]:
        prose(console, "  [bold yellow]?[/] ", f"{escape(path)}: {escape(reason)}")
    if len(unreadable) > _MOST_LINES:
        console.print(f"  and {len(unreadable) - _MOST_LINES} more")


def markdown(
    found: Merged, unreadable: Sequence[tuple[str, str]], refused: Sequence[tuple[str, str]] = ()
) -> str:
    """The same as Markdown, with the tables; links are relative to the folder of the merged report."""
    lines = [f"# {counted(sum(found.verdicts.values()), 'certificate')}", ""]
    lines += [
        f"- {_SIGNS[kind]} {found.verdicts[verdict.value]} {words}"
        for verdict, (kind, words) in KINDS.items()
    ]
    lines += ["", "## What failed, by cause", ""] if found.groups else [""]
    for group in found.groups:
        certified = [name for name in group.certified_with if name]
        lines += [
            f"### {markdown_cell(problem_words(group))}: {counted(len(group.certificates), 'certificate')}",
            "",
            f"- {markdown_cell(cause_words(group))}"
            + (f" (certified with: {markdown_cell(few(certified))})" if certified else ""),
            *([f"- What it means: {markdown_cell(group.means)}"] if group.means else []),
            *([f"- Measured: {markdown_cell(group.measured)}"] if group.measured else []),
            *([f"- Failed too: {markdown_cell(', '.join(group.also))}"] if group.also else []),
            *([f"- All of them: {markdown_cell('; '.join(group.in_common))}"] if group.in_common else []),
            f"- Fix: {markdown_cell(fix_words(group))}",
            *(f"    1. {markdown_cell(step.line(windows=False))}" for step in group.fix.steps),
            f"- Certificates: {_links([(item.link, name_of(item)) for item in group.certificates])}",
            "",
        ]
    for stack, made in tables(found):
        lines += [f"## {markdown_cell(stack)}", ""]
        heads = ("GPU", "driver", *made.torches)
        lines += [f"| {' | '.join(map(markdown_cell, heads))} |", "|" + "---|" * len(heads)]
        for gpu, driver, cells in made.rows:
            told = " | ".join(_in_cell(cell) if cell else "–" for cell in cells)
            lines.append(f"| {markdown_cell(gpu)} | {markdown_cell(driver)} | {told} |")
        lines += [""]
    for head, rows in ((NO_CERTIFICATE, refused), ("Not read", unreadable)):
        if rows:
            listed = (f"- {markdown_cell(name)}: {markdown_cell(why)}" for name, why in rows)
            lines += [f"## {head}", "", *listed, ""]
    return "\n".join(lines)


def _in_cell(cell: Cell) -> str:
    told = []
    for verdict, (kind, _) in KINDS.items():
        entries = [item for item in cell.certificates if item.verdict is verdict]
        if entries:
            links = _links([(item.link, str(number)) for number, item in enumerate(entries, 1)])
            told.append(f"{_SIGNS[kind]} {links}")
    return "; ".join(told)


def _links(targets: Sequence[tuple[str, str]]) -> str:
    shown = [f"[{markdown_cell(name)}]({link})" for link, name in targets[:_MOST_LINKS]]
    more = len(targets) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
