"""Renders the budget of a training: the parts of each phase as bars, the verdict, what to change, and how large it may get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from splatfix.budget.model import Budget, Expected, Phase, Verdict
from splatfix.report.console import escape, marked, prose, section, table
from splatfix.report.marks import ABSENT, Mark, Table

_BAR = 28
"""Columns of the longest bar."""
_MARKS: Mapping[Verdict, Mark] = {
    Verdict.FITS: Mark.GOOD,
    Verdict.EXCEEDS: Mark.BAD,
    Verdict.UNKNOWN: Mark.UNKNOWN,
}
COLOURS = 6
"""Of the style sheet."""


def gigabytes(number: float | None) -> str:
    """Bytes in GiB, as memory of cards is counted, or in MiB."""
    if number is None:
        return "not known"
    if number < 2**30 / 10:
        return f"{number / 2**20:.1f} MiB"
    return f"{number / 2**30:.2f} GiB"


def headline(budget: Budget) -> str:
    """The verdict in one sentence."""
    card = f"97 % of the {gigabytes(budget.card.memory_bytes)} of {budget.card.name}"
    known = {name: phase for name, phase in budget.phases.items() if phase is not None}
    if budget.verdict is Verdict.UNKNOWN:
        return f"Not known whether it fits {card}: {', '.join(_unknown(budget))}."
    verb, name = "fits", max(known, key=lambda name: known[name].peak_bytes)
    if budget.verdict is Verdict.EXCEEDS:
        # it ends in the first of them, whatever those after it would take
        verb, name = (
            "does not fit",
            next(name for name in known if known[name].peak_bytes > budget.limit_bytes),
        )
    sure = "whatever the error"
    if known[name].low_bytes <= budget.limit_bytes < known[name].high_bytes:
        sure = "which is nearer to the limit than its error"
    return f"It {verb} {card}: {name} peaks at {gigabytes(known[name].peak_bytes)}, {sure}."


def _unknown(budget: Budget) -> Sequence[str]:
    missing = [f"{name} has no data" for name, phase in budget.phases.items() if phase is None]
    if not budget.need.gaussians.high:
        missing = ["nothing tells how many Gaussians it will have (--gaussians)"]
    return missing


def show(console: Console, budget: Budget) -> None:
    """On the terminal."""
    need = budget.need
    marked(console, _MARKS[budget.verdict], escape(headline(budget)), indent=0)
    photos = f"{need.photos} photos of {need.width}x{need.height}"
    prose(console, "  ", escape(f"{need.stack}: {photos}, {count(need.gaussians.typical)} Gaussians"))
    if budget.calibration:
        prose(console, "  calibrated: ", escape(budget.calibration))
    longest = max(
        (part.bytes for phase in budget.phases.values() if phase for part in phase.parts), default=1
    )
    for name, phase in budget.phases.items():
        _show_phase(console, name, phase, longest)
    hosts = [f"{name} {gigabytes(phase.peak_bytes)}" for name, phase in budget.host.items() if phase]
    if hosts:
        section(console, "Host memory")
        prose(console, "  ", escape("; ".join(hosts)))
    section(console, "To expect")
    for label, expected in (("Gaussians", budget.gaussians), ("minutes", budget.minutes)):
        prose(console, f"  {label}: ", escape(in_words(expected)))
    if budget.changes:
        section(console, "To change, in order of least quality lost")
        table(console, ("option", "saves", "then", "quality lost", "figure"), change_rows(budget))
    section(console, "The largest that fits, all else as it is")
    prose(console, "  ", escape(largest(budget)))


def _show_phase(console: Console, name: str, phase: Phase | None, longest: int) -> None:
    if phase is None:
        section(console, f"{name.capitalize()}: not known")
        return
    error = f"{gigabytes(phase.low_bytes)} to {gigabytes(phase.high_bytes)}"
    section(console, f"{name.capitalize()}: {gigabytes(phase.peak_bytes)} ({error})")
    for part in phase.parts:
        bar = "█" * max(1, round(_BAR * part.bytes / longest))
        label = f"{part.name:<28} {gigabytes(part.bytes):>11}  {part.kind:<9}"
        console.print(f"  {escape(label)} [cyan]{bar}[/]", soft_wrap=True)


def count(number: float) -> str:
    """A number of Gaussians."""
    if not number:
        return "an unknown number of"
    return f"{round(number):,}"


def in_words(expected: Expected | None) -> str:
    """A range with what it rests on."""
    if expected is None:
        return "not known: no like run is published"
    figures = f"{expected.low:,.0f} to {expected.high:,.0f}"
    if round(expected.low) == round(expected.high):
        figures = f"{expected.low:,.0f}"
    runs = ", ".join(expected.runs)
    return f"{figures} ({'; '.join(filter(None, (expected.note, runs, expected.source)))})"


def change_rows(budget: Budget) -> Sequence[tuple[str, ...]]:
    """A row for each setting."""
    rows = []
    for row in budget.changes:
        figures = gigabytes(row.saves_bytes), gigabytes(row.peak_bytes)
        rows.append((row.option, *figures, row.quality, f"{row.kind}: {row.source}"))
    return rows


def largest(budget: Budget) -> str:
    """The three limits."""
    limits = budget.largest
    if limits.gaussians is None and limits.resolution is None and limits.photos is None:
        return "not known"
    size = "photos of any size"
    if limits.resolution is not None:
        size = f"photos of {limits.resolution[0]}x{limits.resolution[1]}"
    return f"{_at_most(limits.gaussians, 'Gaussians')}; {size}; {_at_most(limits.photos, 'photos')}"


def _at_most(number: int | None, noun: str) -> str:
    if number is None:
        return f"any number of {noun}"
    return f"{number:,} {noun}"


def bars(phase: Phase, longest: int) -> Sequence[tuple[float, float, int, str]]:
    """From where, how wide (percents of the longest), the colour and the name of each part, one beside the other."""
    drawn = []
    left = 0.0
    for number, part in enumerate(phase.parts):
        width = 100.0 * part.bytes / longest
        drawn.append((left, width, number % COLOURS, part.name))
        left += width
    return drawn


def page(budget: Budget) -> str:
    """The same as one HTML file."""
    from splatfix.report.html import budget_page  # templates and certificates, which nothing else here needs

    phases = {name: phase for name, phase in budget.phases.items() if phase is not None}
    longest = max([budget.limit_bytes, *(phase.peak_bytes for phase in phases.values())])
    headers = ("part", "takes", "at least, at most", "figure")
    expected = [("Gaussians", in_words(budget.gaussians)), ("minutes", in_words(budget.minutes))]
    hosts = [(name, gigabytes(phase.peak_bytes)) for name, phase in budget.host.items() if phase]
    return budget_page(
        headline=headline(budget),
        mark=_MARKS[budget.verdict].value,
        limit=100.0 * budget.limit_bytes / longest,
        phases=[
            (name, f"{gigabytes(phase.peak_bytes)}", bars(phase, longest), Table(headers, _part_rows(phase)))
            for name, phase in phases.items()
        ],
        changes=Table(("option", "saves", "then", "quality lost", "figure"), change_rows(budget)),
        expected=[
            *expected,
            ("the largest that fits", largest(budget)),
            ("calibration", budget.calibration or ABSENT),
        ],
        hosts=hosts,
    )


def _part_rows(phase: Phase) -> Sequence[tuple[str, ...]]:
    rows = []
    for part in phase.parts:
        error = f"{gigabytes(part.low_bytes)} to {gigabytes(part.high_bytes)}"
        rows.append((part.name, gigabytes(part.bytes), error, f"{part.kind}: {part.source}"))
    return rows
