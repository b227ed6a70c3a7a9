"""The budget of a training: the parts of each phase as bars, the verdict, what to change, and how large it may get."""

from collections.abc import Mapping, Sequence

from rich.console import Console

from splatfix.budget.model import Budget, Expected, Phase, Verdict
from splatfix.report.console import escape, marked, prose, section, table
from splatfix.report.forms import writes
from splatfix.report.html.page import page
from splatfix.report.marks import ABSENT, Mark, Table

_VERDICTS: Mapping[Verdict, tuple[Mark, str]] = {
    Verdict.FITS: (Mark.GOOD, "Fits"),
    Verdict.EXCEEDS: (Mark.BAD, "Does not fit"),
    Verdict.UNKNOWN: (Mark.UNKNOWN, "Not known whether it fits"),
}
_CHANGES = ("option", "saves", "peak then", "quality lost", "figure")
_UNKNOWN = "not known"


def gigabytes(number: float | None) -> str:
    """Return bytes in GiB, as memory of cards is counted, or in MiB."""
    if number is None:
        return "unknown"
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
    if budget.verdict is Verdict.UNKNOWN and name and known[name].high_bytes > limit:
        verdict = "May not fit"
    parts = [f"{verdict} {card.name}, {gigabytes(limit)} usable (97 % of {gigabytes(card.memory_bytes)})"]
    if name:
        parts.append(f"{name} takes {with_error(known[name])}")
        if known[name].low_bytes <= limit < known[name].high_bytes:
            parts.append("the limit lies within the error of this estimate (--gaussians narrows it)")
    if budget.verdict is Verdict.UNKNOWN and not known and budget.largest.gaussians is not None:
        parts.append("the number of Gaussians is missing (--gaussians)")
    elif budget.verdict is Verdict.UNKNOWN and missing:
        parts.append(f"not published of {budget.need.stack}: {', '.join(missing)}")
    return "; ".join(parts)


def with_error(phase: Phase | None) -> str:
    """Return a peak with its error, or the bound below it."""
    if phase is None:
        return _UNKNOWN
    if phase.at_least:
        return f"at least {gigabytes(phase.peak_bytes)}"
    error = f"{gigabytes(phase.low_bytes)} to {gigabytes(phase.high_bytes)}"
    return f"{gigabytes(phase.peak_bytes)} ({error})"


@writes(Budget)
def show(console: Console, budget: Budget, *, verbose: bool = False) -> None:
    """Print a budget; with ``verbose`` the parts of each phase, every setting, and all sources."""
    need = budget.need
    marked(console, _VERDICTS[budget.verdict][0], escape(headline(budget)), indent=0)
    photos = f"{need.photos} photos of {need.width}x{need.height}"
    if need.size_option:
        photos += f" (at {need.size_option}: there is no prepared copy)"
    count = "not known"
    if need.gaussians.typical:
        count = f"{need.gaussians.typical:,.0f}"
    prose(console, "  ", escape(f"{need.stack}: {photos}; {budget.unit}: {count}"))
    if budget.scene:
        prose(console, "  ", escape(f"{budget.scene} (scenes found: {budget.scenes}; the largest counts)"))
    if budget.calibration:
        prose(console, "  calibrated: ", escape(budget.calibration))
    section(console, "Peak of the card's memory, and of the host's")
    longest = max(
        (part.bytes for phase in budget.phases.values() if phase for part in phase.parts), default=1
    )
    for name, phase in budget.phases.items():
        host = budget.host[name]
        peak = with_error(phase)
        if host:
            peak += f"; host {with_error(host) if verbose else gigabytes(host.peak_bytes)}"
        prose(console, f"  {name:<11}", escape(peak))
        if phase is None or not verbose:
            continue
        for part in phase.parts:
            bar = "█" * max(1, round(28 * part.bytes / longest))
            label = f"{part.name:<28} {gigabytes(part.bytes):>11}  {part.kind:<9}"
            console.print(f"    {escape(label)} [cyan]{bar}[/]", soft_wrap=True)
    section(console, "Expected, and the maximum with everything else unchanged")
    for label, expected in ((budget.unit, budget.gaussians), ("minutes", budget.minutes)):
        prose(console, f"  {label:<11}", escape(in_words(expected, sources=verbose)))
    limits = "; ".join(f"{name} {limit}" for name, limit in largest(budget) if limit != _UNKNOWN)
    prose(console, f"  {'maximum':<11}", escape(limits or _UNKNOWN))
    if budget.changes:
        section(console, "Settings to change, least quality lost first")
    if verbose:
        table(console, _CHANGES, [(*row[:-1], row[-1].partition(":")[0]) for row in _change_rows(budget)])
        for source in dict.fromkeys(row[-1] for row in _change_rows(budget)):
            prose(console, "  ", f"[dim]{escape(source)}[/]")
        return
    # those without a figure give way where there are many
    changes = [row for row in budget.changes if row.saves_bytes is not None or len(budget.changes) <= 4]
    for row in changes[:4]:
        text = f"{row.option}: saves {gigabytes(row.saves_bytes)}; loses {row.quality}"
        prose(console, "  ", escape(text))
    console.print("[dim]Each part, every setting and all sources: --verbose[/]")


def in_words(expected: Expected | None, *, sources: bool = True) -> str:
    """Return a range with what it rests on."""
    if expected is None:
        return "not known: no similar run is published"
    figures = dict.fromkeys(f"{value:,.0f}" for value in (expected.low, expected.high))
    basis = [expected.note, ", ".join(expected.runs), expected.source]
    if not sources:
        basis = [expected.note or expected.source]
    return f"{' to '.join(figures)} ({'; '.join(filter(None, basis))})"


def _change_rows(budget: Budget) -> Sequence[tuple[str, ...]]:
    """Return a row for each setting."""
    rows = []
    for row in budget.changes:
        figures = gigabytes(row.saves_bytes), gigabytes(row.peak_bytes)
        kind = row.kind.replace("unknown", "no figure")
        rows.append((row.option, *figures, row.quality, f"{kind}: {row.source}"))
    return rows


def largest(budget: Budget) -> Sequence[tuple[str, str]]:
    """Return the three limits, by name; 0 where not even the photos fit."""
    limits = budget.largest
    size = "x".join(map(str, limits.resolution or ()))
    unlimited = "no limit by this card"
    if budget.loading is None or budget.loading.at_least:  # what photos take is not known, or not all of it
        unlimited = _UNKNOWN
    return [
        (budget.unit, _down(limits.gaussians) or _UNKNOWN),
        ("resolution", size or unlimited),
        ("photos", _down(limits.photos) or unlimited),
    ]


def _down(number: int | None) -> str:
    """Return a number with three digits that count, never more than it is; "" for None."""
    if number is None:
        return ""
    unit = 10 ** max(0, len(str(number)) - 3)
    return f"{number // unit * unit:,}"


@writes(Budget, "html")
def budget_page(budget: Budget) -> str:
    """Return the same as one HTML file."""
    phases = {name: phase for name, phase in budget.phases.items() if phase is not None}
    longest = max([budget.limit_bytes, *(phase.peak_bytes for phase in phases.values())])
    drawn = []
    for name, phase in phases.items():
        rows = []
        for part in phase.parts:
            error = f"{gigabytes(part.low_bytes)} to {gigabytes(part.high_bytes)}"
            rows.append((part.name, gigabytes(part.bytes), error, f"{part.kind}: {part.source}"))
        parts = Table(("part", "takes", "at least, at most", "figure"), rows)
        drawn.append((name, with_error(phase), phase.parts, parts))
    return page(
        "vram.html",
        headline=headline(budget),
        mark=_VERDICTS[budget.verdict][0].css,
        limit=100.0 * budget.limit_bytes / longest,
        longest=longest,
        phases=drawn,
        changes=Table(_CHANGES, _change_rows(budget)),
        expected=[
            (budget.unit, in_words(budget.gaussians)),
            ("minutes", in_words(budget.minutes)),
            ("calibration", budget.calibration or ABSENT),
        ],
        largest=largest(budget),
        hosts=[(name, with_error(phase)) for name, phase in budget.host.items() if phase],
    )
