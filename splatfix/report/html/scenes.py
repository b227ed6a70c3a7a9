"""One scene of a certificate as its page shows it: its pictures, curves, memory, time, and the last lines of its log."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct

from smoke_trainer.record import TrainingRecord
from splatfix.certify.model import SceneRun
from splatfix.core.reading import read_text
from splatfix.report.html.charts import Chart, lines, shown, stack
from splatfix.report.html.metrics import MEMORY, Metrics, Values, read_metrics
from splatfix.report.html.views import Views, read_views
from splatfix.report.marks import Badge
from splatfix.report.results import resolution
from splatfix.report.view import scene_badge

FULL = 0.97
"""Of the memory: above it the system moves memory to and fro, and training is 20 times slower."""


class Scene(Struct, frozen=True):
    """Everything about one scene."""

    run: SceneRun
    views: Views
    charts: Sequence[Chart]
    unread: str
    """What of the curves could not be read; "" for nothing, and for a run that failed too early to have any."""
    log: Sequence[str]
    """The last lines."""

    @property
    def badge(self) -> Badge:
        return scene_badge(self.run)

    @property
    def resolution(self) -> str:
        return resolution(self.run.record)


def read_scenes(runs: Sequence[SceneRun], folder: Path) -> Sequence[Scene]:
    """The scenes with what the report folder has of them."""
    scenes = []
    for run, views in zip(runs, read_views(folder, runs), strict=True):
        record = run.record
        # of a run of 30,000 iterations this is 17 MB, of which a chart keeps 240 points: one scene at a time
        metrics = Metrics()
        if run.log and not run.unreadable:
            metrics = read_metrics(folder / PurePosixPath(run.log).parent / "metrics.jsonl")
        drawn = list(charts(metrics, record)) if metrics.iterations else []
        content = read_text(folder / PurePosixPath(run.log)) if run.log else None
        log: Sequence[str] = ()
        if isinstance(content, str):
            # enough for a traceback; the page links the whole log
            log = [line[:2000] for line in content.rstrip().splitlines()[-40:]]
        scenes.append(Scene(run, views, drawn, metrics.unread if record.iterations else "", log))
    return scenes


def charts(metrics: Metrics, record: TrainingRecord) -> Iterable[Chart]:
    """Loss, quality, size, memory and time over the iterations."""
    iterations, columns = metrics.iterations, metrics.columns
    loss_note = "Of the training view of each iteration; lower is better."
    if metrics.resets:
        loss_note += " It jumps where all Gaussians are made nearly transparent, and falls again."
    loss = {"loss": columns["loss"]}
    yield lines("Loss", "", iterations, loss, resets=metrics.resets, from_zero=True, note=loss_note)
    quality = {"training views": columns["psnr"]}
    psnr_note = "Of the training view of each iteration; higher is better."
    yield lines("PSNR", "dB", iterations, quality, resets=metrics.resets, note=psnr_note)
    yield lines("Gaussians", "", iterations, {"Gaussians": columns["gaussians"]}, from_zero=True)
    yield from _memory(metrics, record)
    if metrics.phases:
        # the two that are the renderer's come first, the others as the trainer wrote them
        order = dict.fromkeys(("forward", "backward", *metrics.phases))
        phases = {name: metrics.phases[name] for name in order if name in metrics.phases}
        clock = "Measured by CUDA events; more Gaussians take longer."
        if not record.memory.cuda:
            clock = "This is wall time, in which other programs of the machine count too; more Gaussians take longer."
        yield stack("Time per iteration", "ms", iterations, phases, f"{_bottleneck(phases)} {clock}")


def _bottleneck(phases: Mapping[str, Values]) -> str:
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


def _memory(metrics: Metrics, record: TrainingRecord) -> Iterator[Chart]:
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
    memory = limit / 2**30
    peak = max(max(filter(None, values), default=0.0) for values in series.values())
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
