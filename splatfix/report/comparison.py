"""Each scene's speed, memory and quality beside the baseline's, for every form of a certificate and for ``report diff``."""

from collections.abc import Sequence

from msgspec import Struct
from rich.console import Console

from splatfix.certify.model import Compared, Comparison, Outcome
from splatfix.core.proof import Rung
from splatfix.core.words import few
from splatfix.report.console import escape, marked, prose, section
from splatfix.report.forms import writes
from splatfix.report.marks import ABSENT, Badge, Mark, Table
from splatfix.report.templates import fill_in

TITLE = "Beside the baseline"
_HEADERS = ("scene", "speed", "change", "train memory", "eval memory", "PSNR", "SSIM", "LPIPS", "verdict")
_VERDICTS = {
    Outcome.MET: Badge(Mark.GOOD, "holds"),
    Outcome.FAILED: Badge(Mark.BAD, "worse"),
    Outcome.NOT_MEASURED: Badge(Mark.NONE, "not comparable"),
    Outcome.UNDETERMINED: Badge(Mark.UNSURE, "undetermined"),
}
# In bytes, as the trainer records them; people read MiB.
_MEMORY = ("train-memory", "eval-memory")
_NAMES = dict(zip((*_MEMORY, "psnr", "ssim", "lpips"), _HEADERS[3:-1], strict=True))


class Baseline(Struct, frozen=True):
    """Each scene beside the baseline's."""

    caption: str
    table: Table
    """A row for each scene: ``3.02 (2.90)`` is this run and the baseline; – was not measured."""
    remarks: Sequence[str]
    """Why a scene is worse or not comparable, and what of it was not judged: one line for each reason."""


def baseline_of(comparison: Comparison) -> Baseline:
    """Return a comparison as it is shown."""
    rows = []
    # by the reason, what it is about and in which scenes
    subjects: dict[str, dict[str, None]] = {}
    scenes: dict[str, dict[str, None]] = {}
    for scene in comparison.scenes:
        measures = {measure.name: measure for measure in scene.measures}
        speed, change = measures.get("speed"), ABSENT
        if speed is not None and speed.change is not None:
            change = f"{speed.change:+.0%}"
        others = (_cell(measures.get(name)) for name in _NAMES)
        rows.append((scene.scene, _cell(speed), change, *others, _VERDICTS[scene.outcome]))
        reasons = [(scene.why, _VERDICTS[scene.outcome].text)]
        for measure in scene.measures:
            # those that share the reason of the whole scene are told with it
            if measure.outcome is Outcome.NOT_MEASURED and measure.why != scene.why:
                reasons.append((measure.why, _NAMES.get(measure.name, measure.name)))
        for reason, subject in reasons:
            subjects.setdefault(reason, {})[subject] = None
            scenes.setdefault(reason, {})[scene.scene] = None
    remarks = [
        f"{', '.join(names)} ({few(list(scenes[reason]))}): {reason}"
        for reason, names in subjects.items()
        if reason
    ]
    # published figures have a name
    source = ", ".join(filter(None, (comparison.baseline, comparison.source)))
    caption = f"This run, and in brackets the baseline: {source}."
    return Baseline(caption, Table(_HEADERS, rows), remarks)


def _cell(measure: Compared | None) -> str:
    if measure is None or (measure.now is None and measure.baseline is None):
        return ABSENT
    text = f"{_number(measure, measure.now)} ({_number(measure, measure.baseline)})"
    if measure.outcome is Outcome.FAILED:
        text += " ✗"
    return text


def _number(measure: Compared, value: float | None) -> str:
    if value is None:
        return ABSENT
    if measure.name in _MEMORY:
        return f"{value / 2**20:,.0f} MiB"
    if not measure.unit:
        return f"{value:.4f}"
    return f"{value:.2f} {measure.unit}"


def show_baseline(console: Console, baseline: Baseline) -> None:
    """Print the table, a line for each scene: it is wider than a terminal."""
    section(console, TITLE)
    prose(console, "  ", escape(baseline.caption))
    for scene, *cells, verdict in baseline.table.rows:
        named = zip(_HEADERS[1:-1], cells, strict=True)
        measures = ", ".join(f"{name} {cell}" for name, cell in named if cell != ABSENT)
        head = f"  {verdict.mark.markup} {escape(scene):<10}  "
        prose(console, head, escape(f"{verdict.text}: {measures}"))
    for remark in baseline.remarks:
        prose(console, "  ", f"[dim]{escape(remark)}[/]")


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


@writes(Difference)
def show(console: Console, difference: Difference) -> None:
    """Print the outcome, then each scene of B beside A's."""
    badge = _REPRODUCES[difference.reproduces.reached]
    marked(console, badge.mark, f"[bold]{badge.text}[/]", indent=0)
    prose(console, "  A: ", escape(difference.a))
    prose(console, "  B: ", escape(difference.b))
    show_baseline(console, baseline_of(difference.comparison))


@writes(Difference, "markdown")
def markdown(difference: Difference) -> str:
    """Return the same as Markdown."""
    heading = _REPRODUCES[difference.reproduces.reached].text
    baseline = baseline_of(difference.comparison)
    return fill_in("difference.md", difference=difference, heading=heading, baseline=baseline)
