"""Merged certificates: for the terminal, as Markdown and as rows; their page is in :mod:`splatfix.report.html`."""

import csv
import io
import re
from collections.abc import Iterator, Sequence

from rich.console import Console

from splatfix.certify.model import Verdict
from splatfix.core.visible import visible
from splatfix.core.words import counted, few
from splatfix.report.console import escape, marked, prose, section, show_todo
from splatfix.report.forms import writes
from splatfix.report.marks import Badge, Mark, Table
from splatfix.report.merging import Cell, Group, MergeDocument, natural
from splatfix.report.templates import fill_in
from splatfix.report.view import VERDICTS

_MOST = 20
"""Groups and files on a terminal, which is read from top to bottom; the JSON document has all."""
_COLUMNS = ("file", "sha256", "verdict", "issued", "gpu", "driver", "torch", "stack", "suite", "problem")


def title(document: MergeDocument) -> str:
    """Return ``160 certificates``."""
    return counted(sum(document.verdicts.values()), "certificate")


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


def tables(document: MergeDocument) -> Iterator[tuple[str, Table]]:
    """Yield the name of each stack, and its cells: GPU, driver, and for each torch its cell, None where there is none."""
    stacks: dict[str, list[Cell]] = {}
    for cell in document.cells:
        stacks.setdefault(cell.stack, []).append(cell)
    for stack, cells in stacks.items():
        # 2.9 before 2.13, as people read versions
        torches = sorted({cell.torch for cell in cells}, key=natural)
        by_place = {(cell.gpu, cell.driver, cell.torch): cell for cell in cells}
        rows = []
        for gpu, driver in dict.fromkeys((cell.gpu, cell.driver) for cell in cells):
            rows.append((gpu, driver, *(by_place.get((gpu, driver, torch)) for torch in torches)))
        named = (torch or "torch not recorded" for torch in torches)
        yield stack or "stack not recorded", Table(("GPU", "driver", *named), rows)


def badge_of(group: Group) -> Badge:
    """Return the verdict of a group: undetermined only where all of them are."""
    if all(entry.verdict is Verdict.UNDETERMINED for entry in group.certificates):
        return VERDICTS[Verdict.UNDETERMINED]
    return VERDICTS[Verdict.NOT_CERTIFIED]


def cause(group: Group) -> str:
    """Return the first cause that differs, in words that claim no more."""
    if group.part:
        return f"first differs from certified ones: {group.label} {group.value}"
    return "differs from no certified one in what was recorded before"


def rows_of(group: Group) -> list[tuple[str, str]]:
    """Return what is known of a group, by name; without what is not."""
    rows = (
        ("what it means", group.means),
        ("measured", group.measured),
        ("failed too", ", ".join(group.also)),
        ("certified with", few([value for value in group.certified_with if value])),
        ("all of them", "; ".join(group.in_common)),
        ("fix", f"{group.fix.title} (advised by {group.advised} of {len(group.certificates)})"),
    )
    return [(name, value) for name, value in rows if value]


def not_read(document: MergeDocument) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what gave no certificate, by name with the reason, below a title."""
    titles: dict[str, list[tuple[str, str]]] = {}
    for lane in document.refused:
        titles.setdefault("Lanes without a certificate", []).append((lane.lane, lane.error.what))
    for file in document.unreadable:
        titles.setdefault("Not read", []).append((file.path, file.reason))
    return list(titles.items())


@writes(MergeDocument)
def show(console: Console, document: MergeDocument) -> None:
    """Print how many there are of each verdict, the groups with their fix, and what could not be read."""
    verdicts = ", ".join(badge.text for badge in badges(document)) or "none"
    prose(console, "", f"[bold]{title(document)}[/]: {verdicts}", hang=2)
    for page in document.files[:1]:
        prose(console, "  Matrix: ", escape(page))
    for group in document.groups[:_MOST]:
        console.print()
        number = counted(len(group.certificates), "certificate")
        problem = f"[bold]{escape(f'{group.kind} {group.code}')}[/] in {number}"
        marked(console, badge_of(group).mark, f"{problem}: {escape(cause(group))}", indent=0)
        for name, value in rows_of(group):
            if name not in ("what it means", "measured", "failed too"):
                prose(console, f"    {name}: ", escape(value))
        show_todo(console, group.fix.steps, indent=4)
        names = few([entry.name for entry in group.certificates], 3)
        prose(console, "    ", f"[dim]{escape(names)}[/]")
    if document.groups[_MOST:]:
        console.print(f"\nMore groups in the page: {len(document.groups[_MOST:])}")
    for name, rows in not_read(document):
        section(console, f"{name} ({len(rows)})")
        for subject, reason in rows[:_MOST]:
            marked(console, Mark.UNSURE, f"{escape(subject)}: {escape(reason)}")


@writes(MergeDocument, "markdown")
def markdown(document: MergeDocument) -> str:
    """Return the same as Markdown, with the tables; links are relative to the folder of the merged report."""
    return fill_in(
        "certificates.md",
        document=document,
        title=title(document),
        badges=badges(document),
        tables=tables(document),
        cause=cause,
        rows_of=rows_of,
        not_read=not_read(document),
        verdicts=VERDICTS,
        most_links=5,
    )


@writes(MergeDocument, "csv")
def comma_separated(document: MergeDocument) -> str:
    """Return a row for each certificate, and of what gave none its name and why, as RFC 4180 has them. What a spreadsheet would
    run as a formula has an apostrophe before it (OWASP, CSV injection): names are a stranger's."""
    rows: list[Sequence[str]] = [_COLUMNS]
    for cell in document.cells:
        for entry in cell.certificates:
            begins = (entry.file, entry.sha256, entry.verdict.value, entry.issued)
            rows.append((*begins, cell.gpu, cell.driver, cell.torch, cell.stack, entry.suite, entry.problem))
    for _, missing in not_read(document):
        rows += [(name, *("" for _ in _COLUMNS[2:]), reason) for name, reason in missing]
    text = io.StringIO()
    writer = csv.writer(text)
    for row in rows:
        writer.writerow([re.sub(r"\A(?=[=+\-@\t\r])", "'", visible(value)) for value in row])
    return text.getvalue()
