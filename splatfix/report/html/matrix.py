"""Merged certificates as one HTML file: what failed by cause, then a table for each stack, every cell with its links."""

from __future__ import annotations

from collections.abc import Sequence

from splatfix.certify.model import Verdict
from splatfix.core.words import counted
from splatfix.report.html.markup import Html, badge, details, element, items, join, pairs, table
from splatfix.report.html.shell import contents, whole_page
from splatfix.report.merged import (
    KINDS,
    NO_CERTIFICATE,
    cause_words,
    fix_words,
    name_of,
    problem_words,
    tables,
)
from splatfix.report.merging import Cell, Group, Listed, Merged

MOST_LINKS = 20
"""Of one cell or group; the JSON document has all."""
MOST_UNREADABLE = 200
OPENED = 2
"""Groups that show all at once."""


def matrix_page(
    found: Merged,
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
    sections = [
        ("causes", "What failed, by cause", join(_group(*one, data) for one in enumerate(found.groups))),
        ("matrix", "GPU, driver, torch and stack", _matrix(found, data)),
        ("refused", NO_CERTIFICATE, table(NO_CERTIFICATE, ("lane", "why"), refused) if refused else Html("")),
        ("unreadable", "Not read", _unreadable(unreadable, data)),
    ]
    total = sum(found.verdicts.values())
    kind = next((name for verdict, (name, _) in KINDS.items() if found.verdicts[verdict.value]), "none")
    told = [
        badge(name, f"{found.verdicts[verdict.value]} {words}")
        for verdict, (name, words) in KINDS.items()
        if found.verdicts[verdict.value]
    ]
    header = element(
        "header",
        element("p", "splatfix report merge", class_="kicker"),
        element("h1", counted(total, "certificate")),
        items("ul", told, class_="legend claim", aria_label="Verdicts"),
        element("p", counted(len(unreadable), "file"), " could not be read.") if unreadable else "",
        element("p", "All of it as data: ", element("a", data, href=data), class_="note"),
        contents(sections),
        class_=kind,
    )
    title = f"splatfix: {counted(total, 'certificate')}"
    return whole_page(title, header, sections, "A certificate covers only what was run for it.")


def _group(number: int, group: Group, data: str) -> Html:
    kind, words = KINDS[Verdict.NOT_CERTIFIED]
    if all(item.verdict is Verdict.UNDETERMINED for item in group.certificates):
        kind, words = KINDS[Verdict.UNDETERMINED]
    said = join(
        (
            badge(kind, f"{len(group.certificates)} {words}"),
            element("b", problem_words(group)),
            element("span", cause_words(group), class_="measured"),
        )
    )
    steps = (
        join(
            (
                element("span", step.text),
                element("pre", step.command.shell(windows=False), tabindex=0) if step.command else "",
            )
        )
        for step in group.fix.steps
    )
    return details(
        said,
        pairs(
            (
                ("what it means", group.means),
                ("measured", group.measured),
                ("failed too", ", ".join(group.also)),
                ("certified with", ", ".join(filter(None, group.certified_with))),
                ("all of them", "; ".join(group.in_common)),
                ("fix", join((fix_words(group), items("ol", steps)))),
                ("certificates", _links(group.certificates, data, problems=False)),
            )
        ),
        opened=number < OPENED,
        class_=f"criterion group {kind}",
    )


def _matrix(found: Merged, data: str) -> Html:
    parts: list[object] = []
    for stack, made in tables(found):
        rows = [
            (gpu, driver, *(_cell(cell, data) if cell else "–" for cell in cells))
            for gpu, driver, cells in made.rows
        ]
        parts += [
            element("h3", stack),
            element(
                "div",
                table("Rows: GPU and driver; columns: torch", ("GPU", "driver", *made.torches), rows),
                class_="wide matrix",
                tabindex=0,
                role="region",
                aria_label=stack,
            ),
        ]
    return join(parts)


def _cell(cell: Cell, data: str) -> Html:
    counts = [(kind, cell.count(verdict), words) for verdict, (kind, words) in KINDS.items()]
    badges = [badge(kind, f"{count} {words}") for kind, count, words in counts if count]
    if len(cell.certificates) == 1:
        (entry,) = cell.certificates
        kind, words = KINDS[entry.verdict]
        link = element("a", badge(kind, words), href=entry.link)
        return join((link, element("p", entry.problem, class_="note") if entry.problem else ""))
    return details(join(piece for one in badges for piece in (one, " ")), _links(cell.certificates, data))


def _links(entries: Sequence[Listed], data: str, *, problems: bool = True) -> Html:
    """Links to certificates, those that failed first.

    Args:
        problems: say of each what it is; else only when it was issued.
    """
    order = list(KINDS)
    chosen = sorted(entries, key=lambda item: order.index(item.verdict))[:MOST_LINKS]
    links = []
    for entry in chosen:
        kind, words = KINDS[entry.verdict]
        told = (badge(kind, words), f" {entry.problem}") if problems else (entry.issued[:10],)
        links.append(
            join((element("a", name_of(entry), href=entry.link), " ", element("span", *told, class_="note")))
        )
    if more := len(entries) - len(chosen):
        links.append(join((f"and {more} more in ", element("a", data, href=data))))
    return items("ul", links, class_="links")


def _unreadable(unreadable: Sequence[tuple[str, str]], data: str) -> Html:
    if not unreadable:
        return Html("")
    rows = unreadable[:MOST_UNREADABLE]
    more = len(unreadable) - len(rows)
    return join(
        (
            table("They are in no count above", ("file", "why"), rows),
            element("p", f"and {more} more in ", element("a", data, href=data)) if more else "",
        )
    )
