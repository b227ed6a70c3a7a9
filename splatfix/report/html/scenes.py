"""One scene of a certificate: its criteria, pictures, curves, memory, time, and the last lines of its log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from splatfix.certify.model import Criterion, Outcome, SceneRun
from splatfix.certify.record import TrainingRecord
from splatfix.core.reading import read_text
from splatfix.core.words import counted
from splatfix.report.html.charts import lines, shown, stack
from splatfix.report.html.markup import (
    NOTHING,
    Html,
    badge,
    details,
    element,
    join,
    note,
    pairs,
    pre,
    wide_table,
)
from splatfix.report.html.metrics import MEMORY, Metrics, Values, read_metrics
from splatfix.report.html.views import Views, show_views
from splatfix.report.results import resolution
from splatfix.report.tree import Badge, Link, Table
from splatfix.report.view import OUTCOMES, CertificateView, scene_badge
from splatfix.report.wording import HELD_OUT, SLIDE, TITLES, statement

GIB = 2**30
FULL = 0.97
"""Of the memory: above it the system moves memory to and fro, and training is 20 times slower."""
# Enough for a traceback; the page links the whole log.
LOG_LINES = 40


def overview(view: CertificateView) -> Html:
    """The results of all scenes in one table."""
    results = view.results
    if results is None:
        return NOTHING
    rows = []
    for number, (scene, *cells) in enumerate(results.rows):
        rows.append((element("a", scene, href=f"#scene-{number}"), *cells))
    caption = "Each scene's name leads to its criteria, pictures and curves; – was not measured"
    content = Table(results.headers, rows)
    return join(wide_table("Results by scene", caption, content, "wide results"), note(view.legend))


def section(run: SceneRun, number: int, folder: Path, views: Views) -> Html:
    """Everything about one scene.

    Args:
        number: of the scene, for links.
        folder: the report folder, which holds the scene's own.
    """
    record = run.record
    parts: list[object] = [element("h3", run.scene, " ", badge(scene_badge(run)))]
    if run.unreadable:
        parts.append(element("p", run.unreadable))
    parts += [note(f"Reservation: {text}") for text in record.notes]
    parts += [element("h4", "Criteria"), *criteria(run.criteria)]
    if run.images:
        hint = element("span", SLIDE, class_="slide")
        parts += [element("h4", "Held-out views"), note(HELD_OUT, " ", hint)]
        parts.append(show_views(views, number, resolution(record)))
    # read here and not before: a run of 30,000 iterations has 17 MB, of which a chart keeps 240 points
    metrics = _metrics(run, folder)
    if metrics.iterations:
        parts += [element("h4", "Training"), element("div", *charts(metrics, record), class_="charts")]
    if metrics.unread and record.has("gaussians"):  # a run that failed early has no curve to miss
        parts.append(note(f"{metrics.unread}."))
    parts.append(_log(run, folder))
    return element("section", *parts, id=f"scene-{number}", class_="scene")


def _metrics(run: SceneRun, folder: Path) -> Metrics:
    if not run.log or run.unreadable:
        return Metrics()
    return read_metrics(folder / PurePosixPath(run.log).parent / "metrics.jsonl")


def charts(metrics: Metrics, record: TrainingRecord) -> Iterable[Html]:
    """Loss, quality, size, memory and time over the iterations."""
    iterations, columns = metrics.iterations, metrics.columns
    resets = ("opacity reset", metrics.resets)
    loss_note = "Of the training view of each iteration; lower is better."
    if metrics.resets:
        loss_note += " It jumps where all Gaussians are made nearly transparent, and falls again."
    yield lines(
        "Loss", "", iterations, {"loss": columns["loss"]}, marks=resets, from_zero=True, note=loss_note
    )
    yield lines(
        "PSNR",
        "dB",
        iterations,
        {"training views": columns["psnr"]},
        marks=resets,
        note="Of the training view of each iteration; higher is better.",
    )
    yield lines("Gaussians", "", iterations, {"Gaussians": columns["gaussians"]}, from_zero=True)
    yield from _memory(metrics, record)
    if metrics.phases:
        # the two that are the renderer's come first, the others as the trainer wrote them
        order = dict.fromkeys(("forward", "backward", *metrics.phases))
        phases = {name: metrics.phases[name] for name in order if name in metrics.phases}
        chart_note = f"{bottleneck(phases)} {clock(record)}"
        yield stack("Time per iteration", "ms", iterations, phases, chart_note)


def bottleneck(phases: Mapping[str, Sequence[float | None]]) -> str:
    """The phase that takes most of the time, in a sentence."""
    sums = {name: sum(value or 0.0 for value in values) for name, values in phases.items()}
    total = sum(sums.values())
    if not total:
        return "No time was recorded."
    slowest = max(sums, key=lambda name: sums[name])
    text = f"Bottleneck: {slowest}, {sums[slowest] / total:.0%} of the time."
    if sums.get("forward") and "backward" in sums:
        text += f" Backward takes {sums['backward'] / sums['forward']:.2f} times as long as forward."
    return text


def clock(record: TrainingRecord) -> str:
    """What the chart of time measures, and by what the criterion ``throughput-steady`` judges instead: as
    ``smoke_trainer/timing.py`` has it."""
    if record.memory.cuda:
        return "Measured by CUDA events; more Gaussians take longer."
    return (
        "This is wall time, in which other programs of the machine count too; more Gaussians take longer. "
        f"“{statement('throughput-steady')}” is judged by the processor time of this process: its slow iterations, and its rise "
        "after the last densification. Beside other programs it refuses nothing."
    )


def _memory(metrics: Metrics, record: TrainingRecord) -> Iterable[Html]:
    series: dict[str, Values] = {}
    for name, label in MEMORY.items():
        if any(value is not None for value in metrics.columns[name]):
            series[label] = metrics.columns[name]
    if not series:
        return
    # the limit of a container or cgroup, where it is lower than the machine's memory
    title, limit = "Memory", record.memory.limit
    if any(metrics.columns["vram_allocated_gb"]):
        title, limit = "GPU memory", record.machine.gpu_memory
    if not limit or limit < 0:
        unknown = "How much memory there is, is not known."
        yield lines(title, "GiB", metrics.iterations, series, from_zero=True, note=unknown)
        return
    memory = limit / GIB
    peak = max(value for values in series.values() for value in values if value is not None)
    full = FULL * memory
    text = f"Peak {shown(peak)} of {shown(memory)} GiB, {peak / memory:.1%}."
    text += f" Above {FULL:.0%} of it training is many times slower."
    # a line far above the curves would press them flat
    if peak < 0.2 * memory:
        text += f" That limit, {shown(full)} GiB, is far above this chart."
        yield lines(title, "GiB", metrics.iterations, series, note=text)
    else:
        line = (f"{FULL:.0%} of {shown(memory)} GiB", full)
        yield lines(title, "GiB", metrics.iterations, series, limit=line, note=text)


def criteria(items: Sequence[Criterion]) -> Iterable[Html]:
    """What failed or stayed open, line by line and the failures opened; what was met, together."""
    for outcome, label in OUTCOMES.items():
        matching = [item for item in items if item.outcome is outcome]
        if outcome is not Outcome.MET:
            yield from map(_criterion, matching)
        elif matching:
            summary = join(
                badge(label), element("b", f"{len(matching)} of {counted(len(items), 'criterion')}")
            )
            yield details(summary, *map(_criterion, matching), class_=_class(label))


def _class(label: Badge) -> str:
    return f"criterion {label.mark.value}"


def _criterion(item: Criterion) -> Html:
    label = OUTCOMES[item.outcome]
    title = statement(item.code)
    if item.code not in TITLES and item.required:
        # the codes of checks name problems; what they ask for is the statement that is met or failed
        title = item.required
    summary = join(badge(label), element("b", title), element("span", item.measured, class_="measured"))
    explanation = pairs(
        (
            ("required", item.required),
            ("what it means", item.why),
            ("source", item.source),
            ("code", element("code", item.code)),
        )
    )
    return details(summary, explanation, opened=item.outcome is Outcome.FAILED, class_=_class(label))


def _log(run: SceneRun, folder: Path) -> Html:
    content = read_text(folder / PurePosixPath(run.log)) if run.log else None
    if not isinstance(content, str) or not content.strip():
        return NOTHING
    last = content.rstrip().splitlines()[-LOG_LINES:]
    # "./": a file called javascript:x is no scheme then
    link = Link(run.log, "./" + quote(run.log, errors="surrogateescape"))
    return details(
        f"Last {counted(len(last), 'line')} of the trainer's log",
        pre("\n".join(line[:2000] for line in last)),
        element("p", "All of it: ", link),
        opened=run.passed is False,
    )
