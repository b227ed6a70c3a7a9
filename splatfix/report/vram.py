"""Renders the budget of a training: the parts of each phase as bars, the verdict, what to change, and how large it may get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from splatfix.budget.model import Budget, Expected, Phase, Verdict
from splatfix.core.words import verb
from splatfix.report.console import escape, marked, prose, section, table
from splatfix.report.marks import ABSENT, Mark, Table

_MARKS: Mapping[Verdict, Mark] = {
    Verdict.FITS: Mark.GOOD,
    Verdict.EXCEEDS: Mark.BAD,
    Verdict.UNKNOWN: Mark.UNKNOWN,
}
CHANGES = ("option", "saves", "peak then", "quality lost", "figure")
UNKNOWN = "not known"


def gigabytes(number: float | None) -> str:
    """Bytes in GiB, as memory of cards is counted, or in MiB."""
    if number is None:
        return "unknown"
    if number < 2**30 / 10:
        return f"{number / 2**20:.1f} MiB"
    return f"{number / 2**30:.2f} GiB"


def headline(budget: Budget) -> str:
    """The verdict in one sentence."""
    card = budget.card.name
    usable = f"{gigabytes(budget.limit_bytes)} usable (97 % of {gigabytes(budget.card.memory_bytes)})"
    known = {name: phase for name, phase in budget.phases.items() if phase is not None}
    verdict, compared = "Fits", "of"
    name = max(known, key=lambda name: known[name].high_bytes, default="")
    if budget.verdict is Verdict.UNKNOWN and (not name or known[name].high_bytes <= budget.limit_bytes):
        least = f"{name} takes {with_error(known[name])} of {usable}; " if name else ""
        return f"Not known whether it fits {card}: {least}{', '.join(_unknown(budget))}."
    if budget.verdict is Verdict.UNKNOWN:
        verdict = "May not fit"
    if budget.verdict is Verdict.EXCEEDS:
        # it ends in the first of them, whatever those after it would take
        verdict, compared = "Does not fit", "of only"
        name = next(name for name in known if known[name].peak_bytes > budget.limit_bytes)
    phase = known[name]
    doubt = ""
    if phase.low_bytes <= budget.limit_bytes < phase.high_bytes:
        doubt = " The limit lies within the error of this estimate."
        if budget.need.gaussians.low < budget.need.gaussians.high:
            doubt += " --gaussians narrows it."
    takes = "takes" if phase.at_least else "peaks at"
    return f"{verdict} {card}: {name} {takes} {with_error(phase)} {compared} {usable}.{doubt}"


def with_error(phase: Phase) -> str:
    """A peak with its error, or the bound below it."""
    if phase.at_least:
        return f"at least {gigabytes(phase.peak_bytes)}"
    error = f"{gigabytes(phase.low_bytes)} to {gigabytes(phase.high_bytes)}"
    return f"{gigabytes(phase.peak_bytes)} ({error})"


def _unknown(budget: Budget) -> Sequence[str]:
    missing = [name for name, phase in budget.phases.items() if phase is None]
    if len(missing) == len(budget.phases):
        if budget.largest.gaussians is None:
            return [f"nobody published the memory of {budget.need.stack}"]
        return ["the number of Gaussians is missing (--gaussians)"]
    if any(phase is not None and phase.at_least for phase in budget.phases.values()):
        return ["nobody published what else it takes"]
    return [f"nobody published what {' and '.join(missing)} {verb(len(missing), 'takes', 'take')}"]


def show(console: Console, budget: Budget, *, verbose: bool = False) -> None:
    """Print a budget; with ``verbose`` the parts of each phase, every setting, and all sources."""
    need = budget.need
    marked(console, _MARKS[budget.verdict], escape(headline(budget)), indent=0)
    photos = f"{need.photos} photos of {need.width}x{need.height}"
    if need.size_option:
        photos += f" (at {need.size_option}: there is no prepared copy)"
    prose(console, "  ", escape(f"{need.stack}: {photos}, {count(need.gaussians.typical)} {budget.unit}"))
    if budget.scene:
        largest_of = f", the largest of {budget.scenes} scenes" if budget.scenes > 1 else ""
        prose(console, "  ", escape(f"{budget.scene}{largest_of}"))
    if budget.calibration:
        prose(console, "  calibrated: ", escape(budget.calibration))
    longest = max(
        (part.bytes for phase in budget.phases.values() if phase for part in phase.parts), default=1
    )
    if not verbose:
        section(console, "Peak of the card's memory")
    for name, phase in budget.phases.items():
        peak = with_error(phase) if phase else UNKNOWN
        if not verbose:
            host = budget.host[name]
            if host:
                peak += f"; of host memory {gigabytes(host.peak_bytes)}"
            prose(console, f"  {name:<11}", escape(peak))
            continue
        section(console, f"{name.capitalize()}: {peak}")
        for part in phase.parts if phase else ():
            bar = "█" * max(1, round(28 * part.bytes / longest))
            label = f"{part.name:<28} {gigabytes(part.bytes):>11}  {part.kind:<9}"
            console.print(f"  {escape(label)} [cyan]{bar}[/]", soft_wrap=True)
    hosts = [(name, with_error(phase)) for name, phase in budget.host.items() if phase]
    if hosts and verbose:
        section(console, "Host memory")
        for name, peak in hosts:
            prose(console, f"  {name:<11}", escape(peak))
    section(console, "Expected, and the maximum with everything else unchanged")
    for label, expected in ((budget.unit, budget.gaussians), ("minutes", budget.minutes)):
        prose(console, f"  {label:<11}", escape(in_words(expected, sources=verbose)))
    limits = "; ".join(f"{name} {limit}" for name, limit in largest(budget) if limit != UNKNOWN)
    prose(console, f"  {'maximum':<11}", escape(limits or UNKNOWN))
    rows = change_rows(budget)
    if rows:
        section(console, "Settings to change, least quality lost first")
    if verbose:
        table(console, CHANGES, [(*row[:-1], row[-1].partition(":")[0]) for row in rows])
        for source in dict.fromkeys(row[-1] for row in rows):
            prose(console, "  ", f"[dim]{escape(source)}[/]")
    else:
        if len(rows) > 4:
            rows = [row for row in rows if row[1] != gigabytes(None)]
        for option, saves, _, quality, _ in rows[:4]:
            prose(console, "  ", escape(f"{option}: saves {saves}; loses {quality}"))
    if not verbose:
        console.print("[dim]Each part, every setting and all sources: --verbose[/]")


def count(number: float) -> str:
    """A number of Gaussians."""
    if not number:
        return "an unknown number of"
    return f"{round(number):,}"


def in_words(expected: Expected | None, *, sources: bool = True) -> str:
    """A range with what it rests on."""
    if expected is None:
        return "not known: no similar run is published"
    figures = f"{expected.low:,.0f} to {expected.high:,.0f}"
    if round(expected.low) == round(expected.high):
        figures = f"{expected.low:,.0f}"
    basis = [expected.note, ", ".join(expected.runs), expected.source]
    if not sources:
        basis = [expected.note or expected.source]
    return f"{figures} ({'; '.join(filter(None, basis))})"


def change_rows(budget: Budget) -> Sequence[tuple[str, ...]]:
    """A row for each setting."""
    rows = []
    for row in budget.changes:
        figures = gigabytes(row.saves_bytes), gigabytes(row.peak_bytes)
        kind = row.kind.replace("unknown", "no figure")
        rows.append((row.option, *figures, row.quality, f"{kind}: {row.source}"))
    return rows


def largest(budget: Budget) -> Sequence[tuple[str, str]]:
    """The three limits, by name."""
    limits = budget.largest
    size = None
    if limits.resolution is not None:
        size = "x".join(map(str, limits.resolution))
    if limits.resolution == (0, 0):
        size = "none"
    unlimited, gaussians = "no limit by this card", _down(limits.gaussians) or UNKNOWN
    if budget.loading is None or budget.loading.at_least:  # what photos take is not known, or not all of it
        unlimited = UNKNOWN
    elif limits.gaussians == 0:
        gaussians = "none: the photos alone do not fit"
    return [
        (budget.unit, gaussians),
        ("resolution", size or unlimited),
        ("photos", _down(limits.photos) or unlimited),
    ]


def _down(number: int | None) -> str:
    """With three digits that count, never more than the number; "" for None."""
    if number is None:
        return ""
    if not number:
        return "none"
    unit = 10 ** max(0, len(str(number)) - 3)
    return f"{number // unit * unit:,}"


def page(budget: Budget) -> str:
    """The same as one HTML file."""
    from splatfix.report import html  # templates and certificates, which nothing else here needs

    phases = {name: phase for name, phase in budget.phases.items() if phase is not None}
    longest = max([budget.limit_bytes, *(phase.peak_bytes for phase in phases.values())])
    headers = ("part", "takes", "at least, at most", "figure")
    expected = [(budget.unit, in_words(budget.gaussians)), ("minutes", in_words(budget.minutes))]
    hosts = [(name, with_error(phase)) for name, phase in budget.host.items() if phase]
    drawn = []
    for name, phase in phases.items():
        rows = []
        for part in phase.parts:
            error = f"{gigabytes(part.low_bytes)} to {gigabytes(part.high_bytes)}"
            rows.append((part.name, gigabytes(part.bytes), error, f"{part.kind}: {part.source}"))
        drawn.append((name, with_error(phase), phase.parts, Table(headers, rows)))
    return html.page(
        "vram.html",
        headline=headline(budget),
        mark=_MARKS[budget.verdict].css,
        limit=100.0 * budget.limit_bytes / longest,
        longest=longest,
        phases=drawn,
        changes=Table(CHANGES, change_rows(budget)),
        expected=[*expected, ("calibration", budget.calibration or ABSENT)],
        largest=largest(budget),
        hosts=hosts,
    )
