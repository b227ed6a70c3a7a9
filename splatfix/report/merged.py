"""Merged certificates in their forms: for the terminal, as Markdown, as one page, and as rows."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from splatfix.certify.model import Verdict
from splatfix.core.visible import visible
from splatfix.core.words import counted, few, grouped
from splatfix.report.console import escape, marked, prose, section, show_todo
from splatfix.report.forms import writes
from splatfix.report.marks import Badge, Mark, Table
from splatfix.report.merging import Group, MergeDocument, natural
from splatfix.report.templates import fill_in, page
from splatfix.report.view import VERDICTS

_COLUMNS = ("file", "sha256", "verdict", "issued", "gpu", "driver", "torch", "stack", "suite", "problem")


def _parts(document: MergeDocument) -> Mapping[str, Any]:
    """Return what the page and the Markdown show."""
    return {
        "document": document,
        "title": counted(sum(document.verdicts.values()), "certificate"),
        "badges": badges(document),
        "tables": tables(document),
        "rows_of": rows_of,
        "not_read": not_read(document),
        "verdicts": VERDICTS,
    }


def badges(document: MergeDocument) -> Sequence[Badge]:
    """Return how many there are of each verdict that occurs: ``3 not certified``."""
    listed = [entry for cell in document.cells for entry in cell.certificates]
    untrained = sum(entry.verdict is Verdict.CERTIFIED and bool(entry.remark) for entry in listed)
    found = []
    for verdict, badge in VERDICTS.items():
        number, remark = document.verdicts[verdict.value], ""
        if verdict is Verdict.CERTIFIED and untrained:
            remark = f", {untrained} of them without training"
        if number:
            found.append(Badge(badge.mark, f"{number} {badge.text}{remark}"))
    return found


def tables(document: MergeDocument) -> Mapping[str, Table]:
    """Return each stack's cells by its name: GPU, driver, and for each torch its cell, None where there is none."""
    made = {}
    for stack, cells in grouped(document.cells, lambda cell: cell.stack or "stack not recorded").items():
        # 2.9 before 2.13, as people read versions
        torches = sorted({cell.torch for cell in cells}, key=natural)
        by_place = {(cell.gpu, cell.driver, cell.torch): cell for cell in cells}
        rows = []
        for gpu, driver in dict.fromkeys((cell.gpu, cell.driver) for cell in cells):
            rows.append((gpu, driver, *(by_place.get((gpu, driver, torch)) for torch in torches)))
        named = (torch or "torch not recorded" for torch in torches)
        made[stack] = Table(("GPU", "driver", *named), rows)
    return made


def rows_of(group: Group) -> list[tuple[str, str]]:
    """Return what is known of a group, by name; without what is not."""
    rows = (
        ("what it means", group.means),
        ("measured", group.measured),
        ("failed too", ", ".join(group.also)),
        ("in common", "; ".join(group.in_common)),
    )
    return [(name, value) for name, value in rows if value]


def not_read(document: MergeDocument) -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return what gave no certificate, by name with the reason, below a title."""
    titles = {
        "Lanes without a certificate": [(lane.lane, lane.error.what) for lane in document.refused],
        "Not read": [(file.path, file.reason) for file in document.unreadable],
    }
    return {title: rows for title, rows in titles.items() if rows}


@writes(MergeDocument)
def show(console: Console, document: MergeDocument) -> None:
    """Print how many there are of each verdict, the groups with their fix, and what could not be read."""
    verdicts = ", ".join(badge.text for badge in badges(document)) or "none"
    prose(console, "", f"[bold]{_parts(document)['title']}[/]: {verdicts}", hang=2)
    for written in document.files[:1]:
        prose(console, "  Matrix: ", escape(written))
    for group in document.groups:
        console.print()
        problem = f"[bold]{escape(f'{group.kind} {group.code}')}[/] in {len(group.certificates)}"
        names = few([entry.name for entry in group.certificates], 3)
        marked(console, VERDICTS[group.certificates[0].verdict].mark, f"{problem}: {escape(names)}", indent=0)
        for name, value in rows_of(group):
            prose(console, f"    {name}: ", escape(value))
        show_todo(console, group.fix, indent=4)
    for name, rows in not_read(document).items():
        section(console, f"{name} ({len(rows)})")
        for subject, reason in rows[:20]:  # the page has all
            marked(console, Mark.UNSURE, f"{escape(subject)}: {escape(reason)}")


@writes(MergeDocument, "markdown")
def markdown(document: MergeDocument) -> str:
    """Return the same as Markdown, with the tables; links are relative to the folder of the merged report."""
    return fill_in("certificates.md", most_links=5, **_parts(document))


@writes(MergeDocument, "html")
def merged_page(document: MergeDocument) -> str:
    """Return the same as one HTML file; the data lies beside it."""
    return page("certificates.html", most_links=20, data="certificates.json", **_parts(document))


@writes(MergeDocument, "csv")
def comma_separated(document: MergeDocument) -> str:
    """Return a row for each certificate, and of what gave none its name and why, as RFC 4180 has them. What a spreadsheet would
    run as a formula has an apostrophe before it (OWASP, CSV injection): names are a stranger's."""
    rows: list[Sequence[str]] = [_COLUMNS]
    for cell in document.cells:
        for entry in cell.certificates:
            begins = (entry.file, entry.sha256, entry.verdict.value, entry.issued)
            rows.append((*begins, cell.gpu, cell.driver, cell.torch, cell.stack, entry.suite, entry.problem))
    for missing in not_read(document).values():
        rows += [(name, *("" for _ in _COLUMNS[2:]), reason) for name, reason in missing]
    text = io.StringIO()
    writer = csv.writer(text)
    for row in rows:
        writer.writerow([re.sub(r"\A(?=[=+\-@\t\r])", "'", visible(value)) for value in row])
    return text.getvalue()
