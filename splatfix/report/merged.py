"""Merged certificates in words: for the terminal and as Markdown."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from rich.console import Console

from splatfix.certify.model import Verdict
from splatfix.core.visible import visible
from splatfix.core.words import counted, few
from splatfix.report.console import escape, marked, paragraph, prose, section, show_step
from splatfix.report.marks import Badge, Mark, Table
from splatfix.report.merging import Cell, Group, Listed, Merged
from splatfix.report.recorded import natural
from splatfix.report.templates import fill_in

VERDICTS: Mapping[Verdict, Badge] = {
    Verdict.NOT_CERTIFIED: Badge(Mark.BAD, "not certified"),
    Verdict.UNDETERMINED: Badge(Mark.UNSURE, "undetermined"),
    Verdict.REHEARSED: Badge(Mark.GOOD, "rehearsed"),
    Verdict.CERTIFIED: Badge(Mark.GOOD, "certified"),
}
"""How each verdict is shown, the one that matters most first."""
NO_CERTIFICATE = "Lanes without a certificate"
# Of a cell or group. A terminal and a Markdown file are read from top to bottom; the JSON document has all.
_MOST_LINKS = 5
_MOST_LINES = 20


class StackTable(Struct, frozen=True):
    """The cells of one stack: GPU, driver, and for each torch its cell, None where there is none."""

    name: str
    table: Table


class MergedView(Struct, frozen=True):
    """Merged certificates as every form shows them."""

    merged: Merged

    @property
    def groups(self) -> Sequence[GroupView]:
        """The groups of failures, the largest first."""
        return list(map(GroupView, self.merged.groups))

    @property
    def title(self) -> str:
        """How many there are."""
        return counted(sum(self.merged.verdicts.values()), "certificate")

    @property
    def verdicts(self) -> Sequence[Badge]:
        """How many there are of each verdict that occurs: ``3 not certified``."""
        badges = []
        for verdict, badge in VERDICTS.items():
            number = self.merged.verdicts[verdict.value]
            if number:
                badges.append(Badge(badge.mark, f"{number} {badge.text}{self._without_training(verdict)}"))
        return badges

    def _without_training(self, verdict: Verdict) -> str:
        entries = (entry for cell in self.merged.cells for entry in cell.certificates)
        number = sum(
            entry.verdict is verdict is Verdict.CERTIFIED and _trained_nothing(entry) for entry in entries
        )
        return f", {number} of them without training" if number else ""

    @property
    def tables(self) -> Iterator[StackTable]:
        """The matrix as a table for each stack."""
        stacks: dict[str, list[Cell]] = {}
        for cell in self.merged.cells:
            stacks.setdefault(cell.stack, []).append(cell)
        for stack, cells in stacks.items():
            # 2.9 before 2.13, as people read versions
            torches = sorted({cell.torch for cell in cells}, key=natural)
            by_place = {(cell.gpu, cell.driver, cell.torch): cell for cell in cells}
            rows = []
            for gpu, driver in dict.fromkeys((cell.gpu, cell.driver) for cell in cells):
                rows.append((gpu, driver, *(by_place.get((gpu, driver, torch)) for torch in torches)))
            named = (torch or "torch not recorded" for torch in torches)
            yield StackTable(stack or "stack not recorded", Table(("GPU", "driver", *named), rows))


class GroupView(Struct, frozen=True):
    """A group of failures as every form shows it."""

    group: Group

    @property
    def verdict(self) -> Verdict:
        """Undetermined only where all of them are."""
        if all(entry.verdict is Verdict.UNDETERMINED for entry in self.group.certificates):
            return Verdict.UNDETERMINED
        return Verdict.NOT_CERTIFIED

    @property
    def problem(self) -> str:
        """``criterion loss-falls``."""
        return f"{self.group.kind} {self.group.code}"

    @property
    def cause(self) -> str:
        """The first cause that differs, in words that claim no more."""
        if self.group.part:
            return f"first differs from certified ones: {self.group.label} {self.group.value}"
        return "differs from no certified one in what was recorded before"

    @property
    def certified_with(self) -> str:
        """What the certified ones have there."""
        return few([value for value in self.group.certified_with if value])

    @property
    def fix(self) -> str:
        """The fix, and how many of the certificates advise it."""
        group = self.group
        if not group.advised:
            return f"{group.fix.title} (none of these certificates has advice)"
        return f"{group.fix.title} (advised by {group.advised} of {len(group.certificates)})"

    @property
    def remarks(self) -> Sequence[tuple[str, str]]:
        """Label and text of what else there is to say; "" where there is nothing."""
        group = self.group
        return (
            ("What it means", group.means),
            ("Measured", group.measured),
            ("Failed too", ", ".join(group.also)),
            ("All of them", "; ".join(group.in_common)),
            ("Fix", self.fix),
        )


def show(
    console: Console,
    merged: Merged,
    unreadable: Sequence[tuple[str, str]],
    page: str,
    refused: Sequence[tuple[str, str]] = (),
) -> None:
    """How many there are of each verdict, the groups with their fix, and what could not be read.

    Args:
        refused: lanes without a certificate, and why.
        page: where the HTML page is; "" where nothing was merged.
    """
    view = MergedView(merged)
    headline = f"[bold]{view.title}[/]"
    if view.verdicts:
        headline += f": {', '.join(badge.text for badge in view.verdicts)}"
    paragraph(console, headline, first=0, then=2)
    if page:
        prose(console, "  Matrix: ", escape(page))
    for group in view.groups[:_MOST_LINES]:
        _show_group(console, group)
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


def _show_group(console: Console, view: GroupView) -> None:
    group = view.group
    headline = f"[bold]{escape(view.problem)}[/] in {counted(len(group.certificates), 'certificate')}"
    console.print()
    marked(console, VERDICTS[view.verdict].mark, f"{headline}: {escape(view.cause)}", indent=0)
    if view.certified_with:
        prose(console, "    certified with: ", escape(view.certified_with))
    if group.in_common:
        prose(console, "    all of them: ", escape("; ".join(group.in_common)))
    prose(console, "    fix: ", escape(view.fix))
    for step in group.fix.steps:
        show_step(console, step, indent=4)
    names = few([entry.name for entry in group.certificates], 3)
    prose(console, "    ", f"[dim]{escape(names)}[/]")


def markdown(
    merged: Merged, unreadable: Sequence[tuple[str, str]], refused: Sequence[tuple[str, str]] = ()
) -> str:
    """The same as Markdown, with the tables; links are relative to the folder of the merged report."""
    return fill_in(
        "certificates.md",
        view=MergedView(merged),
        verdicts=VERDICTS,
        most_links=_MOST_LINKS,
        refused=refused,
        unreadable=unreadable,
        no_certificate=NO_CERTIFICATE,
        remark=remark,
    )


def remark(entry: Listed) -> str:
    """That it trained nothing; "" where it did."""
    return f"run level {entry.level}, nothing trained" if _trained_nothing(entry) else ""


def _trained_nothing(entry: Listed) -> bool:
    return entry.level in (1, 2)


_COLUMNS = ("file", "sha256", "verdict", "issued", "gpu", "driver", "torch", "stack", "suite", "problem")


def comma_separated(
    merged: Merged, unreadable: Sequence[tuple[str, str]], refused: Sequence[tuple[str, str]] = ()
) -> str:
    """A row for each certificate; of what gave none its name and why."""
    rows: list[Sequence[str]] = [_COLUMNS]
    for cell in merged.cells:
        for entry in cell.certificates:
            rows.append(
                (
                    *(entry.file, entry.sha256, entry.verdict.value, entry.issued),
                    *(cell.gpu, cell.driver, cell.torch, cell.stack, entry.suite, entry.problem),
                )
            )
    for name, reason in (*refused, *unreadable):
        rows.append((name, *("" for _ in _COLUMNS[2:]), reason))
    return spreadsheet(rows)


def spreadsheet(rows: Iterable[Sequence[str]]) -> str:
    """Rows as RFC 4180 has them. What a spreadsheet would run as a formula has an apostrophe before it (OWASP, CSV injection):
    names are a stranger's."""
    text = io.StringIO()
    writer = csv.writer(text)
    for row in rows:
        writer.writerow([re.sub(r"\A(?=[=+\-@\t\r])", "'", visible(value)) for value in row])
    return text.getvalue()
