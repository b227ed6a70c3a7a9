"""Merged certificates as one HTML file: what failed by cause, then a table for each stack, every cell with its links."""

from __future__ import annotations

from collections.abc import Sequence

from splatfix.certify.model import Verdict
from splatfix.core.words import counted
from splatfix.report.html.markup import (
    NOTHING,
    Html,
    badge,
    details,
    element,
    items,
    join,
    note,
    pairs,
    step,
    table,
    wide_table,
)
from splatfix.report.html.shell import contents, whole_page
from splatfix.report.merged import NO_CERTIFICATE, VERDICTS, GroupView, MergedView
from splatfix.report.merging import Cell, Group, Listed, Merged
from splatfix.report.tree import ABSENT, Badge, Link, Table

MOST_LINKS = 20
"""Of one cell or group; the JSON document has all."""
MOST_UNREADABLE = 200
OPENED = 2
"""Groups that show all at once."""


def matrix_page(
    merged: Merged,
    unreadable: Sequence[tuple[str, str]],
    data: str,
    refused: Sequence[tuple[str, str]] = (),
) -> str:
    """The page.

    Args:
        unreadable: path and reason of each file that could not be read.
        data: the JSON document beside it, as a relative URL.
        refused: container lanes without a certificate, and why.
    """
    page = _Page(MergedView(merged), Link(data, data))
    lanes = table(NO_CERTIFICATE, Table(("lane", "why"), refused)) if refused else NOTHING
    sections = [
        ("causes", "What failed, by cause", page.groups()),
        ("matrix", "GPU, driver, torch and stack", page.matrix()),
        ("refused", NO_CERTIFICATE, lanes),
        ("unreadable", "Not read", page.unreadable(unreadable)),
    ]
    view = page.view
    missing = NOTHING
    if unreadable:
        missing = element("p", counted(len(unreadable), "file"), " could not be read.")
    header = element(
        "header",
        element("p", "splatfix report merge", class_="kicker"),
        element("h1", view.title),
        items("ul", map(badge, view.verdicts), class_="legend claim", aria_label="Verdicts"),
        missing,
        note("All of it as data: ", page.data),
        contents(sections),
        class_=view.verdicts[0].mark.value if view.verdicts else "none",
    )
    remark = "A certificate covers only what was run for it."
    return whole_page(f"splatfix: {view.title}", header, sections, remark)


class _Page:
    """The parts of the page, of which many lead to the JSON document."""

    def __init__(self, view: MergedView, data: Link) -> None:
        self.view = view
        self.data = data

    def groups(self) -> Html:
        groups = self.view.merged.groups
        return join(*(self._group(number, GroupView(group)) for number, group in enumerate(groups)))

    def _group(self, number: int, view: GroupView) -> Html:
        group: Group = view.group
        verdict = VERDICTS[view.verdict]
        summary = join(
            badge(Badge(verdict.mark, f"{len(group.certificates)} {verdict.text}")),
            element("b", view.problem),
            element("span", view.cause, class_="measured"),
        )
        facts = pairs(
            (
                ("what it means", group.means),
                ("measured", group.measured),
                ("failed too", ", ".join(group.also)),
                ("certified with", ", ".join(filter(None, group.certified_with))),
                ("all of them", "; ".join(group.in_common)),
                ("fix", join(view.fix, items("ol", map(step, group.fix.steps)))),
                ("certificates", self._links(group.certificates, problems=False)),
            )
        )
        class_ = f"criterion group {verdict.mark.value}"
        return details(summary, facts, opened=number < OPENED, class_=class_)

    def matrix(self) -> Html:
        parts: list[object] = []
        for stack in self.view.tables:
            rows = []
            for gpu, driver, cells in stack.rows:
                rows.append((gpu, driver, *map(self._cell, cells)))
            content = Table(("GPU", "driver", *stack.torches), rows)
            caption = "Rows: GPU and driver; columns: torch"
            parts += [element("h3", stack.name), wide_table(stack.name, caption, content, "wide matrix")]
        return join(*parts)

    # One certificate is a link by itself; many open at a click, because a cell of fifty would tear the table apart.
    def _cell(self, cell: Cell | None) -> Html:
        if cell is None:
            return Html(ABSENT)
        if len(cell.certificates) == 1:
            (entry,) = cell.certificates
            link = element("a", badge(VERDICTS[entry.verdict]), href=entry.link)
            return join(link, note(entry.problem) if entry.problem else "")
        summary: list[object] = []
        for verdict, label in VERDICTS.items():
            count = cell.count(verdict)
            if count:
                summary += [badge(Badge(label.mark, f"{count} {label.text}")), " "]
        return details(join(*summary), self._links(cell.certificates))

    def _links(self, entries: Sequence[Listed], *, problems: bool = True) -> Html:
        """Links to certificates, those that failed first.

        Args:
            problems: say of each what it is; else only when it was issued.
        """
        order: list[Verdict] = list(VERDICTS)
        chosen = sorted(entries, key=lambda item: order.index(item.verdict))[:MOST_LINKS]
        links = []
        for entry in chosen:
            remark: Sequence[object] = (entry.issued[:10],)
            if problems:
                remark = (VERDICTS[entry.verdict], f" {entry.problem}")
            link = element("a", entry.name, href=entry.link)
            links.append(join(link, " ", element("span", *remark, class_="note")))
        links += self._more(len(entries) - len(chosen))
        return items("ul", links, class_="links")

    def unreadable(self, unreadable: Sequence[tuple[str, str]]) -> Html:
        if not unreadable:
            return NOTHING
        rows = unreadable[:MOST_UNREADABLE]
        content = table("They are in no count above", Table(("file", "why"), rows))
        more = (element("p", text) for text in self._more(len(unreadable) - len(rows)))
        return join(content, *more)

    def _more(self, number: int) -> Sequence[Html]:
        return [join(f"and {number} more in ", self.data)] if number else []
