"""Watches the memory and load of any trainer from outside: a series as our own trainer writes it, and a summary.

With ``--phases`` the Python of a command that is started loads the observer, and tells what its phases cost, unedited.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from smoke_trainer.record import TrainingRecord
from splatfix.certify.criteria.resources import bound_by
from splatfix.certify.staging import stage_observer
from splatfix.core.codec import from_json, to_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import make_folder, object_in, set_aside, write_json
from splatfix.core.redact import without_credentials
from splatfix.core.scratch import temporary_folder
from splatfix.facts import System
from splatfix.facts.machine.nvml import GpuUse, NvmlMeter
from splatfix.facts.machine.resources import HostUse, alive, host_use
from splatfix.knowledge.dropins import DROPINS

GIB = float(1 << 30)
SERIES = "metrics.jsonl"
SETTLED_OVER = 10  # consecutive samples ...
SETTLED_WITHIN = 0.02  # ... that differ by at most this share are a settled baseline
FULL = 0.97  # share of a GPU's memory from which on allocations fail, or spill to host memory on Windows
NOTICED = 32 << 20  # bytes; a desktop varies by less
HIDDEN = (
    "the driver does not report the memory of this process (Windows, WSL, or a container): VRAM is what was allocated "
    "since the start and belongs to no visible process"
)
NO_PROC = "host memory and CPU time are not measured: this system has no /proc"
NO_PHASES = (
    "no phases: no backward pass was seen in a Python of the command (-I and -S leave the observer out)"
)

Sample: TypeAlias = dict[str, float | None]
"""A line of ``metrics.jsonl``; None was not measured."""


class PhaseCosts(Struct, frozen=True):
    """Time and memory of a training by phase, as its own process saw them. Memory in GiB: allocated on the GPU, or resident."""

    iterations: int
    seconds: Mapping[str, float]
    """Of load, forward, backward, optimizer, densify, evaluation, and other."""
    bound: str
    """Which phase takes most, and how much all would gain if it took no time."""
    training_gb: float | None
    evaluation_gb: float | None
    growth_gb: float | None
    """In 1,000 iterations, since the number of Gaussians changed last; None: too few."""


class Summary(Struct, frozen=True):
    """The whole watch."""

    target: str
    seconds: float
    samples: int
    exit_code: int | None = field(name="command_exit_code")
    """The command's; None for a process that was started elsewhere."""
    vram_peak_gb: float | None
    vram_settled_gb: float | None
    vram_creep_gb: float | None
    share_above_97_percent: float | None
    """Share of the samples in which a GPU of the process was more than 97 % full."""
    gpu_utilisation_mean: float | None
    rss_peak_gb: float | None
    cpu_percent_mean: float | None
    notes: tuple[str, ...]
    folder: str
    phases: PhaseCosts | None = None
    """None where they were not asked for, or not seen."""


class Meter:
    """Turns readings of GPUs and host into samples, and remembers what the summary needs."""

    def __init__(self, gpus: NvmlMeter, system: System) -> None:
        self._gpus, self._system = gpus, system
        self._cpu_before: tuple[float, float] | None = None
        """At which second, how many of processor time."""
        self._unnamed_before = {gpu.index: self._unnamed(gpu) for gpu in gpus.read()}
        self.samples: list[Sample] = []
        self.notes: dict[str, None] = {}

    def take(self, seconds: float, pid: int, host: HostUse | None) -> Sample:
        """Take one sample at ``seconds`` since the start. Memory in GiB, as in the trainer's own series: of VRAM the whole
        process's, with the allocator's reserve and the CUDA context; what tensors use is not seen from outside."""
        family, rss, percent = {pid}, None, None
        if host is not None:
            family, rss = set(host.processes), host.rss / GIB
            before, self._cpu_before = self._cpu_before, (seconds, host.cpu_seconds)
            if before is not None and seconds > before[0]:
                # a child that ended takes its time out of the sum
                percent = round(max(0.0, 100.0 * (host.cpu_seconds - before[1]) / (seconds - before[0])), 1)
        readings = self._gpus.read()
        if self._gpus.problem:
            self.notes[f"VRAM is not measured: {self._gpus.problem}"] = None
        held, cards = self._held(readings, family)
        shares = [round(gpu.used / gpu.total, 4) for gpu in cards if gpu.used is not None and gpu.total]
        busy = [gpu.utilisation for gpu in cards if gpu.utilisation is not None]
        sample: Sample = {
            "seconds": round(seconds, 3),
            "vram_reserved_gb": held,
            # of the fullest GPU that the process uses, by all processes
            "vram_used_share": max(shares, default=None),
            "gpu_utilisation": max(busy, default=None),
            "rss_gb": rss,
            "cpu_percent": percent,  # 100 is one core
        }
        self.samples.append(sample)
        return sample

    def _held(self, readings: tuple[GpuUse, ...], family: set[int]) -> tuple[float | None, list[GpuUse]]:
        """Return the GiB held on all GPUs together, and the GPUs that the process uses."""
        if not readings:
            return None, []
        cards = [gpu for gpu in readings if family & set(gpu.processes)]
        sizes = [gpu.processes[pid] for gpu in cards for pid in family & set(gpu.processes)]
        known = [size for size in sizes if size is not None]
        if sizes and len(known) == len(sizes):
            return sum(known) / GIB, cards
        # The driver hides this process or its memory: take the growth that no visible process accounts for.
        grown, total = [], 0
        for gpu in readings:
            growth = self._unnamed(gpu) - self._unnamed_before.get(gpu.index, 0)
            if growth >= NOTICED:
                grown.append(gpu)
                total += growth
        if grown or sizes:
            self.notes[HIDDEN] = None
        return total / GIB, grown

    def _unnamed(self, gpu: GpuUse) -> int:
        """Return the bytes in use that belong to no visible process."""
        # inside a container the driver may report the host's process IDs, which mean nothing there
        pids = [pid for pid in gpu.processes if not self._system.exists("/proc") or alive(self._system, pid)]
        return max(0, (gpu.used or 0) - sum(gpu.processes[pid] or 0 for pid in pids))

    def summary(
        self, target: str, exit_code: int | None, seconds: float, folder: Path, phases: PhaseCosts | None
    ) -> Summary:
        """Return peaks, means and shares of all samples."""

        def known(measure: str) -> list[float]:
            values = (sample[measure] for sample in self.samples)
            return [value for value in values if value is not None]

        def mean(values: list[float]) -> float | None:
            return statistics.fmean(values) if values else None

        held, rss, notes = known("vram_reserved_gb"), known("rss_gb"), list(self.notes)
        if not rss and self.samples:
            notes.append(NO_PROC)
        settled = creep = None
        for end in range(SETTLED_OVER, len(held) + 1):
            recent = held[end - SETTLED_OVER : end]
            if min(recent) > 0.0 and max(recent) - min(recent) <= SETTLED_WITHIN * max(recent):
                settled = statistics.median(recent)
                creep = max(0.0, max(held[end - 1 :]) - settled)
                break
        if any(held) and settled is None:
            within = f"within {SETTLED_WITHIN:.0%} over {SETTLED_OVER} samples"
            notes.append(f"VRAM never stayed {within}: no baseline")
        return Summary(
            target=target,
            seconds=round(seconds, 1),
            samples=len(self.samples),
            exit_code=exit_code,
            vram_peak_gb=max(held, default=None),
            vram_settled_gb=settled,
            vram_creep_gb=creep,
            share_above_97_percent=mean([float(share > FULL) for share in known("vram_used_share")]),
            gpu_utilisation_mean=mean(known("gpu_utilisation")),
            rss_peak_gb=max(rss, default=None),
            cpu_percent_mean=mean(known("cpu_percent")),
            notes=tuple(notes),
            folder=str(folder),
            phases=phases,
        )


@contextmanager
def started(
    arguments: tuple[str, ...], *, quiet: bool, environment: Mapping[str, str] | None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command on the user's own terminal and without a time limit, so not by the usual runner; ``quiet`` sends its
    standard output to standard error. While it is watched, Ctrl-C is left to it (same terminal) and SIGTERM passed on; it is
    ended when the watch fails.

    Raises:
        SplatfixError: ``cannot-start`` (exit code 2).
    """
    try:
        command = subprocess.Popen(arguments, stdout=sys.stderr if quiet else None, env=environment)
    except OSError as error:
        raise SplatfixError.of(
            "certify.cannot-start", program=arguments[0], reason=error.strerror or error
        ) from error
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    on_terminate = signal.signal(signal.SIGTERM, lambda *_: command.terminate())
    try:
        yield command
    except BaseException:
        command.terminate()
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, on_terminate)


def watch(
    arguments: tuple[str, ...],
    folder: Path,
    *,
    interval: float = 1.0,
    phases: bool = False,
    quiet: bool = False,
    gpus: NvmlMeter | None = None,
) -> Summary:
    """Watch a command, or the process of an ID, until it ends (or Ctrl-C), and write ``metrics.jsonl`` and ``summary.json`` into
    ``folder``; files of an earlier watch move to ``previous``.

    Raises:
        SplatfixError: ``no-such-process``, ``cannot-start`` (exit code 2), ``cannot-watch`` (3), or ``cannot-write``.
    """
    system, environment, command = System(), None, None
    began, first = time.monotonic(), arguments[0]
    of_process = first.isdigit() and not arguments[1:]
    if of_process and not system.listdir("/proc"):
        raise SplatfixError.of("certify.cannot-watch")
    if of_process and not alive(system, int(first)):
        raise SplatfixError.of("certify.no-such-process", pid=first)
    set_aside(make_folder(folder), (SERIES, "summary.json", "phases"))
    with ExitStack() as stack:
        if phases:
            modules = {item.module.partition(".")[0] for item in DROPINS} | {"gsplat"}
            settings = {
                "out": str(make_folder(folder / "phases").resolve()),
                "checkout": str(Path.cwd()),
                "cpu": False,
                "extensions": sorted(modules),
            }
            staged = stack.enter_context(temporary_folder())
            environment = {**os.environ, **stage_observer(staged, settings)}
        if of_process:
            name, pid = f"process {first}", int(first)
        else:
            command = stack.enter_context(started(arguments, quiet=quiet, environment=environment))
            name, pid = without_credentials(" ".join(arguments)), command.pid

        def ended() -> bool:
            return not alive(system, pid) if command is None else command.poll() is not None

        meter = Meter(gpus or NvmlMeter(), system)
        series = stack.enter_context((folder / SERIES).open("wb", buffering=0))
        written = True
        stack.enter_context(suppress(KeyboardInterrupt))  # it ends the watch of a process
        while not ended():
            sample = meter.take(time.monotonic() - began, pid, host_use(system, pid))
            try:
                if written:
                    series.write(f"{json.dumps(sample)}\n".encode())
            except OSError as error:  # a full disk ends the series, not the training
                written = False
                note = f"the series ends at {sample['seconds']:.0f} s: {error.strerror or error}"
                meter.notes[note] = None
            until = time.monotonic() + interval
            while not ended() and (left := until - time.monotonic()) > 0:
                time.sleep(min(left, 0.1))
    exit_code, costs = None, None
    if command is not None:
        exit_code = command.returncode
        if exit_code < 0:  # as a shell tells signal N
            exit_code = 128 - exit_code
    if phases:
        costs = costs_of(folder / "phases")
        if costs is None:
            meter.notes[NO_PHASES] = None
    summary = meter.summary(name, exit_code, time.monotonic() - began, folder, costs)
    write_json(folder / "summary.json", to_json(summary))
    return summary


def costs_of(out: Path) -> PhaseCosts | None:
    """Return what was observed; None where no process of the command trained in a Python that loads the observer."""
    documents = [object_in(path) for path in out.glob("observed-*.json")]
    records = [from_json(TrainingRecord, document.get("record", {})) for document in documents]
    record = max(records, key=lambda item: item.iterations or 0, default=TrainingRecord())
    if not record.phases:
        return None
    train, evaluation = record.memory.peaks
    growth = record.memory.growth
    return PhaseCosts(
        iterations=record.iterations or 0,
        seconds={"load": record.seconds.get("setup") or 0.0, **record.phases},
        bound=bound_by(record.phases),
        training_gb=train and train / GIB,
        evaluation_gb=evaluation and evaluation / GIB,
        growth_gb=growth.per_1000 / GIB if growth else None,
    )
