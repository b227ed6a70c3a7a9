"""Each scene's speed, memory and quality beside the baseline's, for every form of a certificate and for ``report diff``."""

from collections.abc import Sequence

from msgspec import Struct
from rich.console import Console

from splatfix.certify.model import Compared, Comparison, Outcome
from splatfix.core.proof import Rung
from splatfix.report.console import escape, paragraph, prose, section
from splatfix.report.marks import ABSENT, Badge, Mark, Table

HEADERS = ("scene", "speed", "change", "train memory", "eval memory", "PSNR", "SSIM", "LPIPS", "verdict")
TITLE = "Beside the baseline"
_VERDICTS = {
    Outcome.MET: Badge(Mark.GOOD, "holds"),
    Outcome.FAILED: Badge(Mark.BAD, "worse"),
    Outcome.NOT_MEASURED: Badge(Mark.NONE, "not comparable"),
    Outcome.UNDETERMINED: Badge(Mark.UNSURE, "undetermined"),
}
# In bytes, as the trainer records them; people read MiB.
_MEMORY = ("train-memory", "eval-memory")
_NAMES = dict(zip((*_MEMORY, "psnr", "ssim", "lpips"), HEADERS[3:-1], strict=True))


class Baseline(Struct, frozen=True):
    """Each scene beside the baseline's."""

    caption: str
    table: Table
    """A row for each scene: ``3.02 (2.90)`` is this run and the baseline; – was not measured."""
    remarks: Sequence[str]


def baseline_of(comparison: Comparison) -> Baseline:
    """A comparison as it is shown."""
    source = comparison.source
    if comparison.baseline:  # published figures have a name
        source = f"{comparison.baseline}, {source}"
    caption = f"This run, and in brackets the baseline: {source}."
    rows = []
    # why each scene is worse or not comparable, and what of it was not judged: one line for each reason
    scenes_by_reason: dict[str, list[str]] = {}
    for scene in comparison.scenes:
        measures = {measure.name: measure for measure in scene.measures}
        speed, change = measures.get("speed"), ABSENT
        if speed is not None and speed.change is not None:
            change = f"{speed.change:+.0%}"
        others = (_cell(measures.get(name)) for name in _NAMES)
        rows.append((scene.scene, _cell(speed), change, *others, _VERDICTS[scene.outcome]))
        reasons = []
        if scene.why:
            reasons.append(f"{_VERDICTS[scene.outcome].text}: {scene.why}")
        measures_by_reason: dict[str, list[str]] = {}
        for measure in scene.measures:
            # those that share the reason of the whole scene are told with it
            if measure.outcome is Outcome.NOT_MEASURED and measure.why not in ("", scene.why):
                name = _NAMES.get(measure.name, measure.name)
                measures_by_reason.setdefault(measure.why, []).append(name)
        for reason, names in measures_by_reason.items():
            reasons.append(f"{', '.join(names)} not judged: {reason}")
        for reason in reasons:
            scenes_by_reason.setdefault(reason, []).append(scene.scene)
    every = [scene.scene for scene in comparison.scenes]
    lines = []
    for reason, scenes in scenes_by_reason.items():
        subject = ", ".join(scenes)
        if scenes == every and len(scenes) > 1:  # thirteen names would say no more
            subject = "all scenes"
        lines.append(f"{subject}: {reason}")
    return Baseline(caption, Table(HEADERS, rows), lines)


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
    if measure.name in ("ssim", "lpips"):
        return f"{value:.4f}"
    return f"{value:.2f} {measure.unit}"


def show_baseline(console: Console, baseline: Baseline) -> None:
    """Show the table, a line for each scene: it is wider than a terminal."""
    section(console, TITLE)
    prose(console, "  ", escape(baseline.caption))
    for scene, *cells, verdict in baseline.table.rows:
        named = zip(HEADERS[1:-1], cells, strict=True)
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


REPRODUCES = {
    True: Badge(Mark.GOOD, "B reproduces A"),
    False: Badge(Mark.BAD, "B does not reproduce A"),
    None: Badge(Mark.UNKNOWN, "Whether B reproduces A cannot be told"),
}
"""Whether ``reproduces`` was reached, in a sentence."""


def show(console: Console, difference: Difference) -> None:
    """Show the outcome, then each scene of B beside A's."""
    badge = REPRODUCES[difference.reproduces.reached]
    paragraph(console, f"{badge.mark.markup} [bold]{badge.text}[/]", first=0, then=2)
    prose(console, "  A: ", escape(difference.a))
    prose(console, "  B: ", escape(difference.b))
    show_baseline(console, baseline_of(difference.comparison))
