"""The budget of a training: the verdict, the parts of each phase, how large it may get, and what to change."""

from collections.abc import Mapping

from rich.console import Console

from splatfix.budget.model import Budget, Expected, Phase, Verdict
from splatfix.report.console import escape, marked, pairs, prose, section, table
from splatfix.report.forms import writes
from splatfix.report.marks import Bar, Mark, Part, Table
from splatfix.report.templates import page

_VERDICTS: Mapping[Verdict, tuple[Mark, str]] = {
    Verdict.FITS: (Mark.GOOD, "Fits"),
    Verdict.EXCEEDS: (Mark.BAD, "Does not fit"),
    Verdict.UNKNOWN: (Mark.UNKNOWN, "May not fit"),
}
_UNKNOWN = "not known"


def gigabytes(number: float | None) -> str:
    """Return bytes in GiB, as memory of cards is counted, or in MiB."""
    if number is None:
        return _UNKNOWN
    if number < 2**30 / 10:
        return f"{number / 2**20:.1f} MiB"
    return f"{number / 2**30:.2f} GiB"


def headline(budget: Budget) -> str:
    """Return the verdict, the phase that decides it, and what leaves it open, in a line."""
    card, limit = budget.card, budget.limit_bytes
    known = {name: phase for name, phase in budget.phases.items() if phase is not None}
    missing = [name for name, phase in budget.phases.items() if phase is None or phase.at_least]
    # a training ends in the first phase that is too large, whatever those after it would take
    name = max(known, key=lambda name: known[name].high_bytes, default="")
    name = next((name for name in known if known[name].peak_bytes > limit), name)
    verdict = _VERDICTS[budget.verdict][1]
    parts = [f"{verdict} {card.name}, {gigabytes(limit)} usable (97 % of {gigabytes(card.memory_bytes)})"]
    if name:
        parts.append(f"{name} takes {with_error(known[name])}")
        if known[name].low_bytes <= limit < known[name].high_bytes:
            parts.append("the limit lies within the error of this estimate (--gaussians narrows it)")
    if budget.verdict is Verdict.UNKNOWN and missing:
        why = f"without --gaussians, or not published of {budget.need.stack}"
        parts.append(f"not known {why}: {', '.join(missing)}")
    return "; ".join(parts)


def with_error(phase: Phase | None) -> str:
    """Return a peak with its error, or the bound below it."""
    if phase is None:
        return _UNKNOWN
    if phase.at_least:
        return f"at least {gigabytes(phase.peak_bytes)}"
    error = f"{gigabytes(phase.low_bytes)} to {gigabytes(phase.high_bytes)}"
    return f"{gigabytes(phase.peak_bytes)} ({error})"


def sections(budget: Budget, *, verbose: bool) -> list[tuple[str, Part]]:
    """Return what is told below the headline, by title; with ``verbose`` also the parts of each phase, every setting and all
    sources, which are the last column of each table."""
    need = budget.need
    photos = f"{need.photos} photos of {need.width}x{need.height}"
    if need.size_option:
        photos += f" (at {need.size_option}: there is no prepared copy)"
    count = f"{need.gaussians.typical:,.0f}" if need.gaussians.typical else _UNKNOWN
    scene = budget.scene and f"{budget.scene} (scenes found: {budget.scenes}; the largest counts)"
    peaks = [(need.stack, f"{photos}; {budget.unit}: {count}"), ("scene", scene)]
    peaks.append(("calibrated", budget.calibration))
    for name, phase in budget.phases.items():
        peak = with_error(phase)
        if host := budget.host[name]:
            peak += f"; host {with_error(host) if verbose else gigabytes(host.peak_bytes)}"
        peaks.append((name, peak))
    told: list[tuple[str, Part]] = [("Peak of the card's memory, and of the host's", peaks)]
    if verbose:
        rows = []
        for name, phase in budget.phases.items():
            for part in phase.parts if phase else ():
                error = f"{gigabytes(part.low_bytes)} to {gigabytes(part.high_bytes)}"
                bar = Bar(part.bytes / budget.card.memory_bytes)
                rows.append((name, part.name, gigabytes(part.bytes), error, bar, part.kind, part.source))
        parts = ("phase", "part", "takes", "at least, at most", "of the card", "figure", "source")
        told.append(("Parts of each phase", Table(parts, rows)))
    expected = [
        (budget.unit, in_words(budget.gaussians, sources=verbose)),
        ("minutes", in_words(budget.minutes, sources=verbose)),
        ("maximum", largest(budget)),
    ]
    told.append(("Expected, and the maximum with everything else unchanged", expected))
    # where they are many, those without a figure give way
    changes = [row for row in budget.changes if row.saves_bytes is not None or len(budget.changes) <= 4]
    settings: Part = [
        (row.option, f"saves {gigabytes(row.saves_bytes)}; loses {row.quality}") for row in changes[:4]
    ]
    if verbose:
        full = list[tuple[str, ...]]()
        for row in budget.changes:
            saved = gigabytes(row.saves_bytes), gigabytes(row.peak_bytes)
            full.append((row.option, *saved, row.quality, row.kind, row.source))
        settings = Table(("option", "saves", "peak then", "quality lost", "figure", "source"), full)
    if budget.changes:
        told.append(("Settings to change, least quality lost first", settings))
    return told


@writes(Budget, command="vram")
def show(console: Console, budget: Budget, *, verbose: bool = False) -> None:
    """Print a budget; with ``verbose`` the parts of each phase, every setting, and all sources."""
    marked(console, _VERDICTS[budget.verdict][0], escape(headline(budget)), indent=0)
    for title, part in sections(budget, verbose=verbose):
        section(console, title)
        if isinstance(part, Table):
            table(console, part.headers[:-1], [row[:-1] for row in part.rows])
            for source in dict.fromkeys(row[-1] for row in part.rows):
                prose(console, "  ", f"[dim]{escape(source)}[/]")
        else:
            pairs(console, part)
    if not verbose:
        console.print("[dim]Each part, every setting and all sources: --verbose[/]")


def in_words(expected: Expected | None, *, sources: bool) -> str:
    """Return a range with what it rests on."""
    if expected is None:
        return "not known: no similar run is published"
    figures = dict.fromkeys(f"{value:,.0f}" for value in (expected.low, expected.high))
    basis = [expected.note, ", ".join(expected.runs), expected.source]
    if not sources:
        basis = [expected.note or expected.source]
    return f"{' to '.join(figures)} ({'; '.join(filter(None, basis))})"


def largest(budget: Budget) -> str:
    """Return the three limits; 0 where not even the photos fit."""
    limits, unlimited = budget.largest, "no limit by this card"
    if budget.loading is None or budget.loading.at_least:  # what photos take is not known, or not all of it
        unlimited = _UNKNOWN
    size = "x".join(map(str, limits.resolution or ())) or unlimited
    count = _down(limits.gaussians) or _UNKNOWN
    return f"{budget.unit} {count}; resolution {size}; photos {_down(limits.photos) or unlimited}"


def _down(number: int | None) -> str:
    """Return a number with three digits that count, never more than it is; "" for None."""
    if number is None:
        return ""
    unit = 10 ** max(0, len(str(number)) - 3)
    return f"{number // unit * unit:,}"


@writes(Budget, "html")
def budget_page(budget: Budget) -> str:
    """Return the same as one HTML file."""
    return page(
        "plain.html",
        command="splatfix vram",
        headline=headline(budget),
        mark=_VERDICTS[budget.verdict][0].css,
        remark="Estimated, not measured: each figure says what it rests on.",
        sections=sections(budget, verbose=True),
    )
