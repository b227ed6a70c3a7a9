"""One scene of a certificate as its page shows it: its pictures, curves, memory, time, and the last lines of its log."""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct

from smoke_trainer.record import TrainingRecord
from splatfix.certify.model import SceneRun
from splatfix.core.reading import read_text
from splatfix.report.html.charts import Chart, chart, shown
from splatfix.report.html.metrics import MEMORY, Metrics, read_metrics
from splatfix.report.html.views import Views, read_views

FULL = 0.97
"""Of the memory: above it the system moves memory to and fro, and training is 20 times slower."""


class Scene(Struct, frozen=True):
    """Everything about one scene."""

    run: SceneRun
    views: Views
    charts: Sequence[Chart]
    unread: Sequence[str]
    """What of the curves and the log could not be read; () also for a run that failed too early to have any."""
    log: Sequence[str]
    """The last lines."""


def read_scenes(runs: Sequence[SceneRun], folder: Path) -> Sequence[Scene]:
    """Return the scenes with what the report folder has of them."""
    scenes = []
    for run, views in zip(runs, read_views(folder, runs), strict=True):
        drawn, unread, log = list[Chart](), list[str](), list[str]()
        if run.log:
            path = folder / PurePosixPath(run.log)
            # of a run of 30,000 iterations this is 17 MB, of which a chart keeps 240 points: one scene at a time
            metrics = read_metrics(path.with_name("metrics.jsonl"))
            if metrics.iterations:
                drawn = list(charts(metrics, run.record))
            if metrics.unread and run.record.gaussians.initial is not None:
                unread.append(metrics.unread)
            content = read_text(path)
            if isinstance(content, str):
                # enough for a traceback; the page links the whole log
                log = [line[:2000] for line in content.rstrip().splitlines()[-40:]]
            else:
                unread.append(f"{run.log} cannot be read")
        scenes.append(Scene(run, views, drawn, unread, log))
    return scenes


def charts(metrics: Metrics, record: TrainingRecord) -> Iterator[Chart]:
    """Yield loss, quality, size, memory and time over the iterations."""
    iterations, columns, resets = metrics.iterations, metrics.columns, metrics.resets
    loss_note = "Of the training view of each iteration; lower is better."
    if resets:
        loss_note += " It jumps where all Gaussians are made nearly transparent, and falls again."
    loss = {"loss": columns["loss"]}
    yield chart("Loss", "", iterations, loss, resets=resets, from_zero=True, note=loss_note)
    quality = {"training views": columns["psnr"]}
    psnr_note = "Of the training view of each iteration; higher is better."
    yield chart("PSNR", "dB", iterations, quality, resets=resets, note=psnr_note)
    yield chart("Gaussians", "", iterations, {"Gaussians": columns["gaussians"]}, from_zero=True)
    yield from _memory(metrics, record)
    sums = {name: sum(value or 0.0 for value in values) for name, values in metrics.phases.items()}
    if any(sums.values()):
        # the two that are the renderer's come first, the others as the trainer wrote them
        order = [name for name in dict.fromkeys(("forward", "backward", *sums)) if name in sums]
        total, slowest = sum(sums.values()), max(order, key=lambda name: sums[name])
        phases = {f"{name} {sums[name] / total:.0%}": metrics.phases[name] for name in order}
        note = f"Bottleneck: {slowest}, {sums[slowest] / total:.0%} of the time."
        if not record.memory.cuda:  # there CUDA events measure it
            note += " This is wall time, in which other programs of the machine count too."
        if sums.get("forward") and "backward" in sums:
            note += f" Backward takes {sums['backward'] / sums['forward']:.2f} times as long as forward."
        yield chart("Time per iteration", "ms", iterations, phases, stacked=True, note=note)


def _memory(metrics: Metrics, record: TrainingRecord) -> Iterator[Chart]:
    columns = metrics.columns
    known = [name for name in MEMORY if any(value is not None for value in columns[name])]
    if not known:
        return
    series = {MEMORY[name]: columns[name] for name in known}
    # the limit of a container or cgroup, where it is lower than the machine's memory
    title, limit = "Memory", record.memory.limit
    if any(columns["vram_allocated_gb"]):
        title, limit = "GPU memory", record.machine.gpu_memory
    if not limit or limit < 0:
        unknown = "How much memory there is, is not known."
        yield chart(title, "GiB", metrics.iterations, series, from_zero=True, note=unknown)
        return
    memory = limit / 2**30
    peak = max(value for name in known for value in columns[name] if value is not None)
    note = f"Peak {shown(peak)} of {shown(memory)} GiB, {peak / memory:.1%}."
    note += f" Above {FULL:.0%} of it, {shown(FULL * memory)} GiB, training is many times slower."
    line = None
    if peak >= 0.2 * memory:  # a line far above the curves would press them flat
        line = (f"{FULL:.0%} of {shown(memory)} GiB", FULL * memory)
    yield chart(title, "GiB", metrics.iterations, series, limit=line, note=note)
