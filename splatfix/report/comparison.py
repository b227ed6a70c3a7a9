"""Each scene's speed, memory and quality beside the baseline's, for every form of a certificate and for ``report diff``."""

from msgspec import Struct
from rich.console import Console

from splatfix.certify.model import Compared, Comparison, Outcome
from splatfix.core.proof import Rung
from splatfix.core.words import few
from splatfix.report.console import marked, pairs, section, show_rows
from splatfix.report.forms import writes
from splatfix.report.marks import ABSENT, Badge, Mark, Table
from splatfix.report.templates import fill_in

TITLE = "Beside the baseline"
_NAMES = {
    "speed": "speed",
    "train-memory": "train memory",
    "eval-memory": "eval memory",
    "psnr": "PSNR",
    "ssim": "SSIM",
    "lpips": "LPIPS",
}
_HEADERS = ("scene", "verdict", "speed", "change", *list(_NAMES.values())[1:])
_VERDICTS = {
    Outcome.MET: Badge(Mark.GOOD, "holds"),
    Outcome.FAILED: Badge(Mark.BAD, "worse"),
    Outcome.NOT_MEASURED: Badge(Mark.NONE, "not comparable"),
    Outcome.UNDETERMINED: Badge(Mark.UNSURE, "undetermined"),
}


def table_of(comparison: Comparison | None) -> Table:
    """Return a row for each scene: ``3.02 (2.90)`` is this run and the baseline; – was not measured. The note says why a scene is
    worse or not comparable, and what of it was not judged: each reason once."""
    if comparison is None:
        return Table(_HEADERS)
    rows = []
    # by the reason, what it is about
    subjects: dict[str, list[str]] = {}
    for scene in comparison.scenes:
        cells, verdict = dict.fromkeys(_NAMES, ABSENT), _VERDICTS[scene.outcome]
        change = ABSENT
        if scene.why:
            subjects.setdefault(scene.why, []).append(f"{scene.scene} {verdict.text}")
        for measure in scene.measures:
            cells[measure.name] = _cell(measure)
            if measure.name == "speed" and measure.change is not None:
                change = f"{measure.change:+.0%}"
            # those that share the reason of the whole scene are told with it
            if measure.outcome is Outcome.NOT_MEASURED and measure.why not in ("", scene.why):
                subjects.setdefault(measure.why, []).append(f"{_NAMES[measure.name]} of {scene.scene}")
        speed, *others = cells.values()
        rows.append((scene.scene, verdict, speed, change, *others))
    # published figures have a name
    source = ", ".join(filter(None, (comparison.baseline, comparison.source)))
    remarks = [f"{few(names)}: {reason}." for reason, names in subjects.items()]
    note = " ".join([f"This run, and in brackets the baseline: {source}.", *remarks])
    return Table(_HEADERS, rows, note)


def _cell(measure: Compared) -> str:
    if measure.now is None and measure.baseline is None:
        return ABSENT
    now, before = _number(measure, measure.now), _number(measure, measure.baseline)
    return f"{now} ({before}){' ✗' if measure.outcome is Outcome.FAILED else ''}"


def _number(measure: Compared, value: float | None) -> str:
    if value is None:
        return ABSENT
    if measure.unit == "B":  # as the trainer records memory; people read MiB
        return f"{value / 2**20:,.0f} MiB"
    return f"{value:.2f} {measure.unit}" if measure.unit else f"{value:.4f}"


class Difference(Struct, frozen=True):
    """A certificate beside an earlier one: what ``certify --baseline A`` says of B."""

    a: str
    """The file of the baseline."""
    b: str
    """The file of the certificate that is judged."""
    reproduces: Rung
    comparison: Comparison


_REPRODUCES = {
    True: Badge(Mark.GOOD, "B reproduces A"),
    False: Badge(Mark.BAD, "B does not reproduce A"),
    None: Badge(Mark.UNKNOWN, "Whether B reproduces A cannot be told"),
}


@writes(Difference, command="report diff")
def show(console: Console, difference: Difference) -> None:
    """Print the outcome, then each scene of B beside A's."""
    badge = _REPRODUCES[difference.reproduces.reached]
    marked(console, badge.mark, f"[bold]{badge.text}[/]", indent=0)
    pairs(console, (("A", difference.a), ("B", difference.b)))
    section(console, TITLE)
    show_rows(console, table_of(difference.comparison))


@writes(Difference, "markdown")
def markdown(difference: Difference) -> str:
    """Return the same as Markdown."""
    heading = _REPRODUCES[difference.reproduces.reached].text
    return fill_in(
        "difference.md", difference=difference, heading=heading, table=table_of(difference.comparison)
    )
