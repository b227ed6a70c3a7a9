"""Merged certificates in words: for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from splatfix.certify.model import Verdict
from splatfix.core.words import counted, few
from splatfix.report.console import escape, marked, paragraph, prose, section, show_step
from splatfix.report.markdown import render
from splatfix.report.marks import Mark
from splatfix.report.merging import Cell, Group, Listed, Merged
from splatfix.report.recorded import natural
from splatfix.report.tree import (
    ABSENT,
    Badge,
    Block,
    Inline,
    Items,
    Link,
    Numbered,
    Section,
    Table,
    Text,
    section_if,
)

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


@dataclass(frozen=True)
class StackTable:
    """The cells of one stack."""

    name: str
    torches: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[Cell | None, ...]], ...]
    """GPU, driver, and for each torch its cell."""


@dataclass(frozen=True)
class MergedView:
    """Merged certificates as every form shows them."""

    merged: Merged

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
                badges.append(Badge(badge.mark, f"{number} {badge.text}"))
        return badges

    @property
    def tables(self) -> Iterator[StackTable]:
        """The matrix as a table for each stack."""
        stacks: dict[str, list[Cell]] = {}
        for cell in self.merged.cells:
            stacks.setdefault(cell.stack, []).append(cell)
        for stack, cells in stacks.items():
            # 2.9 before 2.13, as people read versions
            torches = tuple(sorted({cell.torch for cell in cells}, key=natural))
            by_place = {(cell.gpu, cell.driver, cell.torch): cell for cell in cells}
            rows = []
            for gpu, driver in dict.fromkeys((cell.gpu, cell.driver) for cell in cells):
                rows.append((gpu, driver, tuple(by_place.get((gpu, driver, torch)) for torch in torches)))
            named = tuple(torch or "torch not recorded" for torch in torches)
            yield StackTable(stack or "stack not recorded", named, tuple(rows))


@dataclass(frozen=True)
class GroupView:
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
    for group in merged.groups[:_MOST_LINES]:
        _show_group(console, GroupView(group))
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
    view = MergedView(merged)
    counts = []
    for verdict, badge in VERDICTS.items():
        counts.append(f"{badge.mark.sign} {merged.verdicts[verdict.value]} {badge.text}")
    sections = [_group_section(GroupView(group)) for group in merged.groups]
    blocks: list[Block | Section] = [Items(counts), *section_if("What failed, by cause", sections)]
    for stack in view.tables:
        rows: list[Sequence[Text]] = []
        for gpu, driver, cells in stack.rows:
            rows.append((gpu, driver, *map(_cell, cells)))
        blocks.append(Section(stack.name, (Table(("GPU", "driver", *stack.torches), rows),)))
    for title, missing in ((NO_CERTIFICATE, refused), ("Not read", unreadable)):
        if missing:
            blocks.append(Section(title, (Items([f"{name}: {reason}" for name, reason in missing]),)))
    return render(Section(view.title, blocks))


def _group_section(view: GroupView) -> Section:
    group = view.group
    cause = view.cause
    if view.certified_with:
        cause += f" (certified with: {view.certified_with})"
    entries: list[Text | Numbered] = [cause]
    for label, text in (
        ("What it means", group.means),
        ("Measured", group.measured),
        ("Failed too", ", ".join(group.also)),
        ("All of them", "; ".join(group.in_common)),
        ("Fix", view.fix),
    ):
        if text:
            entries.append(f"{label}: {text}")
    entries.append(Numbered([step.line(windows=False) for step in group.fix.steps]))
    names = [entry.name for entry in group.certificates]
    entries.append(("Certificates: ", *_links(group.certificates, names)))
    title = f"{view.problem}: {counted(len(group.certificates), 'certificate')}"
    return Section(title, (Items(entries),))


def _cell(cell: Cell | None) -> Text:
    """``✗ 1, 2; ✓ 1``, each number a link."""
    if cell is None:
        return ABSENT
    pieces: list[Inline] = []
    for verdict, badge in VERDICTS.items():
        entries = [entry for entry in cell.certificates if entry.verdict is verdict]
        if entries:
            separator = "; " if pieces else ""
            numbers = [str(number) for number in range(1, len(entries) + 1)]
            pieces += [f"{separator}{badge.mark.sign} ", *_links(entries, numbers)]
    return pieces


def _links(entries: Sequence[Listed], names: Sequence[str]) -> Iterator[Inline]:
    links = [Link(name, entry.link) for entry, name in zip(entries, names, strict=True)]
    for number, link in enumerate(links[:_MOST_LINKS]):
        if number:
            yield ", "
        yield link
    if len(links) > _MOST_LINKS:
        yield f" and {len(links) - _MOST_LINKS} more"
