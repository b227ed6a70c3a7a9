"""One scene of a certificate: its criteria, pictures, curves, memory, time, and the last lines of its log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from splatfix.certify.model import Criterion, Outcome, SceneRun
from splatfix.core.reading import read_text
from splatfix.core.words import counted
from splatfix.report.html.charts import lines, shown, stack
from splatfix.report.html.markup import Html, badge, details, element, join, pairs, table
from splatfix.report.html.metrics import MEMORY, Metrics, read_metrics
from splatfix.report.html.views import Views, show_views
from splatfix.report.html.words import HELD_OUT, SLIDE, TITLES, title_of
from splatfix.report.results import HEADERS, finite, legend, part, resolution, row

GIB = 2**30
FULL = 0.97
"""Of the memory: above it the system moves memory to and fro, and training is 20 times slower."""
LOG_LINES = 40

OUTCOMES = {
    Outcome.FAILED: ("bad", "failed"),
    Outcome.UNDETERMINED: ("unsure", "undetermined"),
    Outcome.NOT_MEASURED: ("none", "not judged"),
    Outcome.MET: ("good", "met"),
}
"""How each outcome is shown, the ones that matter most first."""
PASSED = {True: ("good", "passed"), False: ("bad", "failed"), None: ("unsure", "undetermined")}


def overview(runs: Sequence[SceneRun]) -> Html:
    """The results of all scenes in one table."""
    rows = []
    for number, run in enumerate(runs):
        kind, words = ("none", "not readable") if run.unreadable else PASSED[run.passed]
        rows.append((element("a", run.scene, href=f"#scene-{number}"), badge(kind, words), *row(run)))
    told = "Each scene's name leads to its criteria, pictures and curves; – was not measured"
    return join(
        (
            element(
                "div",
                table(told, ("scene", "result", *HEADERS), rows),
                class_="wide results",
                tabindex=0,
                role="region",
                aria_label="Results by scene",
            ),
            element("p", legend(runs), class_="note"),
        )
    )


def section(run: SceneRun, number: int, folder: Path, views: Views) -> Html:
    """Everything about one scene.

    Args:
        number: of the scene, for links.
        folder: the report folder, which holds the scene's own.
    """
    kind, words = ("none", "not readable") if run.unreadable else PASSED[run.passed]
    scene = folder / PurePosixPath(run.log).parent if run.log else None
    metrics = read_metrics(scene / "metrics.jsonl") if scene and not run.unreadable else Metrics()
    parts: list[object] = [
        element("h3", run.scene, " ", badge(kind, words)),
        element("p", run.unreadable) if run.unreadable else "",
        *(element("p", f"Reservation: {note}", class_="note") for note in run.result.get("notes") or ()),
        element("h4", "Criteria"),
        *criteria(run.criteria),
    ]
    if run.images:
        parts += [
            element("h4", "Held-out views"),
            element("p", HELD_OUT, " ", element("span", SLIDE, class_="slide"), class_="note"),
        ]
        parts += [show_views(views, number, resolution(run.result))]
    if metrics.iterations:
        parts += [element("h4", "Training"), element("div", *charts(metrics, run.result), class_="charts")]
    if metrics.unread and "gaussians" in run.result:
        parts.append(element("p", f"{metrics.unread}.", class_="note"))
    parts.append(_log(run, folder))
    return element("section", *parts, id=f"scene-{number}", class_="scene")


def charts(metrics: Metrics, result: Mapping[str, Any]) -> Iterable[Html]:
    """Loss, quality, size, memory and time over the iterations."""
    iterations, columns = metrics.iterations, metrics.columns
    resets = ("opacity reset", metrics.resets)
    reset = (
        " It jumps where all Gaussians are made nearly transparent, and falls again."
        if metrics.resets
        else ""
    )
    yield lines(
        "Loss",
        "",
        iterations,
        {"loss": columns["loss"]},
        marks=resets,
        from_zero=True,
        note=f"Of the training view of each iteration; lower is better.{reset}",
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
    yield from _memory(metrics, result)
    phases = metrics.phases
    if phases:
        names = ["forward", "backward", *(name for name in phases if name not in ("forward", "backward"))]
        order = {name: phases[name] for name in names if name in phases}
        yield stack("Time per iteration", "ms", iterations, order, f"{bottleneck(order)} {clock(result)}")


def bottleneck(phases: Mapping[str, Sequence[float | None]]) -> str:
    """The phase that takes most of the time, in a sentence."""
    sums = {name: sum(value or 0.0 for value in values) for name, values in phases.items()}
    slowest, whole = max(sums, key=lambda name: sums[name]), sum(sums.values())
    if not whole:
        return "No time was recorded."
    ratio = (
        f" Backward takes {sums['backward'] / sums['forward']:.2f} times as long as forward."
        if sums.get("forward") and "backward" in sums
        else ""
    )
    return f"Bottleneck: {slowest}, {sums[slowest] / whole:.0%} of the time.{ratio}"


def clock(result: Mapping[str, Any]) -> str:
    """What the chart of time measures, and by what the criterion ``throughput-steady`` judges instead: as
    ``smoke_trainer/timing.py`` has it."""
    if isinstance(part(result, "memory").get("cuda"), Mapping):
        return "Measured by CUDA events; more Gaussians take longer."
    return (
        "This is wall time, in which other programs of the machine count too; more Gaussians take longer. "
        f"“{title_of('throughput-steady')}” is judged by the processor time of this process: its slow iterations, and its rise "
        "after the last densification. Beside other programs it refuses nothing."
    )


def _memory(metrics: Metrics, result: Mapping[str, Any]) -> Iterable[Html]:
    series = {words: metrics.columns[name] for name, words in MEMORY.items()}
    series = {words: values for words, values in series.items() if any(value is not None for value in values)}
    if not series:
        return
    where = "GPU memory" if any(metrics.columns["vram_allocated_gb"]) else "Memory"
    whole = finite(
        part(result, "machine").get("gpu_memory")
        if where == "GPU memory"
        else part(result, "memory").get("limit")
    )
    peak = max(value for values in series.values() for value in values if value is not None)
    if whole is None or whole <= 0:
        yield lines(
            where,
            "GiB",
            metrics.iterations,
            series,
            from_zero=True,
            note="How much memory there is, is not known.",
        )
        return
    whole /= GIB
    note = f"Peak {shown(peak)} of {shown(whole)} GiB, {peak / whole:.1%}. Above {FULL:.0%} of it training is many times slower."
    limit = (f"{FULL:.0%} of {shown(whole)} GiB", FULL * whole)
    far = peak < 0.2 * whole
    note += f" That limit, {shown(limit[1])} GiB, is far above this chart." if far else ""
    yield lines(where, "GiB", metrics.iterations, series, limit=None if far else limit, note=note)


def criteria(judged: Sequence[Criterion]) -> Iterable[Html]:
    """What failed or stayed open, line by line and the failures opened; what was met, together."""
    for outcome, (kind, words) in OUTCOMES.items():
        found = [item for item in judged if item.outcome is outcome]
        if outcome is not Outcome.MET:
            yield from map(_criterion, found)
        elif found:
            said = join((badge(kind, words), element("b", f"{len(found)} of {len(judged)} criteria")))
            yield details(said, *map(_criterion, found), class_=f"criterion {kind}")


def _criterion(item: Criterion) -> Html:
    kind, words = OUTCOMES[item.outcome]
    # the codes of checks name problems; what they ask for is the statement that is met or failed
    title = title_of(item.code) if item.code in TITLES else item.required or title_of(item.code)
    return details(
        join(
            (
                badge(kind, words),
                element("b", title),
                element("span", item.measured, class_="measured"),
            )
        ),
        pairs(
            (
                ("required", item.required),
                ("what it means", item.why),
                ("source", item.source),
                ("code", element("code", item.code)),
            )
        ),
        opened=item.outcome is Outcome.FAILED,
        class_=f"criterion {kind}",
    )


def _log(run: SceneRun, folder: Path) -> Html:
    content = read_text(folder / PurePosixPath(run.log)) if run.log else None
    if not isinstance(content, str) or not content.strip():
        return Html("")
    last = content.rstrip().splitlines()[-LOG_LINES:]
    target = "./" + quote(run.log, errors="surrogateescape")
    return details(
        f"Last {counted(len(last), 'line')} of the trainer's log",
        element("pre", "\n".join(line[:2000] for line in last), tabindex=0),
        element("p", "All of it: ", element("a", run.log, href=target)),
        opened=run.passed is False,
    )
