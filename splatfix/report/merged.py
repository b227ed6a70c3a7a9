"""Merged certificates in words: for the terminal, as Markdown and as rows."""

import csv
import io
import re
from collections.abc import Sequence

from rich.console import Console

from splatfix.core.visible import visible
from splatfix.core.words import counted, few
from splatfix.report.console import escape, marked, paragraph, prose, section, show_step
from splatfix.report.marks import Mark
from splatfix.report.merging import Merged
from splatfix.report.templates import fill_in
from splatfix.report.view import VERDICTS

NO_CERTIFICATE = "Lanes without a certificate"
# Of a cell or group. A terminal and a Markdown file are read from top to bottom; the JSON document has all.
_MOST_LINKS = 5
_MOST_LINES = 20
_COLUMNS = ("file", "sha256", "verdict", "issued", "gpu", "driver", "torch", "stack", "suite", "problem")


def show(
    console: Console,
    merged: Merged,
    unreadable: Sequence[tuple[str, str]],
    page: str,
    refused: Sequence[tuple[str, str]] = (),
) -> None:
    """How many there are of each verdict, the groups with their fix, and what could not be read (``page``: the HTML page)."""
    headline = f"[bold]{merged.title}[/]"
    if merged.badges:
        headline += f": {', '.join(badge.text for badge in merged.badges)}"
    paragraph(console, headline, first=0, then=2)
    if page:
        prose(console, "  Matrix: ", escape(page))
    for group in merged.groups[:_MOST_LINES]:
        problem = f"[bold]{escape(group.problem)}[/] in {counted(len(group.certificates), 'certificate')}"
        console.print()
        marked(console, group.badge.mark, f"{problem}: {escape(group.cause)}", indent=0)
        if group.peers:
            prose(console, "    certified with: ", escape(group.peers))
        if group.in_common:
            prose(console, "    all of them: ", escape("; ".join(group.in_common)))
        prose(console, "    fix: ", escape(group.cure))
        for step in group.fix.steps:
            show_step(console, step, indent=4)
        names = few([entry.name for entry in group.certificates], 3)
        prose(console, "    ", f"[dim]{escape(names)}[/]")
    if len(merged.groups) > _MOST_LINES:
        console.print(f"\n{counted(len(merged.groups) - _MOST_LINES, 'group')} more in the page.")
    if refused:
        section(console, NO_CERTIFICATE)
    for lane, reason in refused:
        marked(console, Mark.UNSURE, f"{escape(lane)}: {escape(reason)}")
    if unreadable:
        console.print(f"\n[bold]Not read[/] ({counted(len(unreadable), 'file')})")
    for path, reason in unreadable[:_MOST_LINES]:
        marked(console, Mark.UNSURE, f"{escape(path)}: {escape(reason)}")
    if len(unreadable) > _MOST_LINES:
        console.print(f"  and {len(unreadable) - _MOST_LINES} more")


def markdown(
    merged: Merged, unreadable: Sequence[tuple[str, str]], refused: Sequence[tuple[str, str]] = ()
) -> str:
    """The same as Markdown, with the tables; links are relative to the folder of the merged report."""
    return fill_in(
        "certificates.md",
        merged=merged,
        verdicts=VERDICTS,
        most_links=_MOST_LINKS,
        refused=refused,
        unreadable=unreadable,
        no_certificate=NO_CERTIFICATE,
    )


def comma_separated(
    merged: Merged, unreadable: Sequence[tuple[str, str]], refused: Sequence[tuple[str, str]] = ()
) -> str:
    """A row for each certificate, and of what gave none its name and why, as RFC 4180 has them. What a spreadsheet would run
    as a formula has an apostrophe before it (OWASP, CSV injection): names are a stranger's."""
    rows: list[Sequence[str]] = [_COLUMNS]
    for cell in merged.cells:
        for entry in cell.certificates:
            begins = (entry.file, entry.sha256, entry.verdict.value, entry.issued)
            rows.append((*begins, cell.gpu, cell.driver, cell.torch, cell.stack, entry.suite, entry.problem))
    for name, reason in (*refused, *unreadable):
        rows.append((name, *("" for _ in _COLUMNS[2:]), reason))
    text = io.StringIO()
    writer = csv.writer(text)
    for row in rows:
        writer.writerow([re.sub(r"\A(?=[=+\-@\t\r])", "'", visible(value)) for value in row])
    return text.getvalue()
