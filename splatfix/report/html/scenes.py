"""One scene of a certificate as its page shows it: its pictures, curves, memory, time, and the last lines of its log."""

import base64
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from markupsafe import Markup
from msgspec import Struct

from smoke_trainer.record import TrainingRecord
from splatfix.certify.model import SceneRun
from splatfix.core.limits import MOST_PICTURES
from splatfix.core.reading import read_bytes, read_text
from splatfix.report.html.charts import chart, shown
from splatfix.report.html.metrics import Line, Values, read_metrics

FULL = 0.97
"""Of the memory: above it the system moves memory to and fro, and training is 20 times slower."""


class View(Struct, frozen=True):
    """A picture that shows the rendering left and the ground truth right."""

    stem: str
    """Its name without the iteration, which the trainer puts first."""
    width: int
    """Pixels of one half."""
    height: int
    encoded: str
    """The file, for a ``data:`` URL."""


class Scene(Struct, frozen=True):
    """Everything about one scene."""

    run: SceneRun
    views: Sequence[View]
    charts: Sequence[Markup]
    missing: Sequence[str]
    """Why each other view is not shown, and what of the curves and the log could not be read."""
    log: Sequence[str]
    """The last lines."""


def read_scenes(runs: Sequence[SceneRun], folder: Path) -> Sequence[Scene]:
    """Return the scenes with what the report folder has of them."""
    scenes = []
    for run in runs:
        # as much for each, so that no scene goes without a picture for the sake of another
        views, missing = read_views(folder, run, MOST_PICTURES // len(runs))
        drawn, log = list[Markup](), list[str]()
        if run.log:
            path = folder / PurePosixPath(run.log)
            # of a run of 30,000 iterations this is 17 MB, of which a chart keeps 240 points: one scene at a time
            rows, unread = read_metrics(path.with_name("metrics.jsonl"))
            if rows:
                drawn = list(charts(rows, run.record))
            if unread and run.record.gaussians.initial is not None:
                missing.append(unread)
            content = read_text(path)
            if isinstance(content, str):
                # enough for a traceback; the page links the whole log
                log = [line[:2000] for line in content.rstrip().splitlines()[-40:]]
            else:
                missing.append(f"{run.log} cannot be read")
        scenes.append(Scene(run, views, drawn, missing, log))
    return scenes


def read_views(folder: Path, run: SceneRun, room: int) -> tuple[list[View], list[str]]:
    """Return up to four views of a scene, as long as there is room for them in the page, and why each other is left out. A
    smaller copy of one (``thumbnails`` beside ``renders``) is taken instead."""
    shown, left_out = list[View](), list[str]()
    for name in run.images[:4]:
        path = PurePosixPath(name)
        smaller = folder.joinpath(*path.parts[:-2], "thumbnails", path.name)
        content = read_bytes(smaller, MOST_PICTURES)
        if content is None:
            content = read_bytes(folder / path, MOST_PICTURES)
        # A PNG begins with its signature and the chunk IHDR, whose first two numbers are width and height.
        if not isinstance(content, bytes) or len(content) < 33 or content[:8] != b"\x89PNG\r\n\x1a\n":
            left_out.append(f"{name}: it is no PNG that can be read")
            continue
        width, height = struct.unpack(">II", content[16:24])
        if len(content) > room:
            left_out.append(f"{name}: the pictures before it take the room that this file has for them")
        elif width < 2 or width % 2 or not height:
            left_out.append(f"{name}: it does not hold two pictures side by side")
        else:
            encoded = base64.b64encode(content).decode()
            shown.append(View(re.sub(r"^[0-9]{6}_", "", path.stem), width // 2, height, encoded))
            room -= len(content)
    return shown, left_out


def charts(rows: Sequence[Line], record: TrainingRecord) -> Iterator[Markup]:
    """Yield loss, quality, size, memory and time over the iterations."""
    iterations, resets = [row.iteration for row in rows], [row.iteration for row in rows if row.opacity_reset]
    loss_note = "Of the training view of each iteration; lower is better."
    if resets:
        loss_note += " It jumps where all Gaussians are made nearly transparent, and falls again."
    loss = {"loss": [row.loss for row in rows]}
    yield chart("Loss", "", iterations, loss, resets=resets, note=loss_note)
    quality = {"training views": [row.psnr for row in rows]}
    psnr_note = "Of the training view of each iteration; higher is better."
    yield chart("PSNR", "dB", iterations, quality, resets=resets, from_zero=False, note=psnr_note)
    sizes = {"Gaussians": [row.gaussians for row in rows]}
    yield chart("Gaussians", "", iterations, sizes)
    columns: dict[str, Values] = {
        "resident": [row.rss_gb for row in rows],
        "allocated on the GPU": [row.vram_allocated_gb for row in rows],
        "reserved on the GPU": [row.vram_reserved_gb for row in rows],
    }
    series = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    # the limit of a container or cgroup, where it is lower than the machine's memory
    title, limit = "Memory", record.memory.limit
    if any(columns["allocated on the GPU"]):
        title, limit = "GPU memory", record.machine.gpu_memory
    if series:
        note = "How much memory there is, is not known."
        if limit and limit > 0:
            memory = limit / 2**30
            peak = max(value for values in series.values() for value in values if value is not None)
            note = f"Peak {shown(peak)} of {shown(memory)} GiB, {peak / memory:.1%}."
            note += f" Above {FULL:.0%} of it, {shown(FULL * memory)} GiB, training is many times slower."
        yield chart(title, "GiB", iterations, series, note=note)
    # the two that are the renderer's come first, the others as the trainer wrote them
    names = ("forward", "backward", *dict.fromkeys(name for row in rows for name in row.ms))
    phases = {name: [row.ms.get(name) for row in rows] for name in names}
    sums = {name: sum(value or 0.0 for value in values) for name, values in phases.items()}
    if total := sum(sums.values()):
        named = {f"{name} {sums[name] / total:.0%}": values for name, values in phases.items() if sums[name]}
        slowest = max(sums, key=sums.__getitem__)
        note = f"Bottleneck: {slowest}, {sums[slowest] / total:.0%} of the time."
        if not record.memory.cuda:  # there CUDA events measure it
            note += " This is wall time, in which other programs of the machine count too."
        yield chart("Time per iteration", "ms", iterations, named, note=note)
