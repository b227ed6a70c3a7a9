"""Watches the memory and load of any trainer from outside: a series as our own trainer writes it, and a summary."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from splatfix.certify.phase_costs import PhaseCosts
from splatfix.core.codec import to_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import make_folder, set_aside, write_json
from splatfix.core.redact import without_credentials
from splatfix.core.step import run
from splatfix.facts import System
from splatfix.facts.machine.nvml import GpuUse, NvmlMeter
from splatfix.facts.machine.resources import HostUse, alive, host_use

GIB = float(1 << 30)
SETTLED_OVER = 10  # consecutive samples ...
SETTLED_WITHIN = 0.02  # ... that differ by at most this share are a settled baseline
FULL = 0.97  # share of a GPU's memory from which on allocations fail, or spill to host memory on Windows
NOTICED = 32 << 20  # bytes; a desktop varies by less
HIDDEN = (
    "the driver does not report the memory of this process (Windows, WSL, or a container): VRAM is what was allocated "
    "since the start and belongs to no visible process"
)
NO_PROC = "host memory and CPU time are not measured: this system has no /proc"


class StartedCommand:
    """A command on the user's own terminal and without a time limit (so not started by the usual runner)."""

    def __init__(
        self, argv: tuple[str, ...], stdout: int | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = without_credentials(" ".join(argv))
        try:
            self._process = subprocess.Popen(argv, stdout=stdout, env=environment)
        except OSError as error:
            raise SplatfixError.of(
                "certify.cannot-start", program=argv[0], reason=error.strerror or error
            ) from error
        self.pid = self._process.pid

    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def exit_code(self) -> int | None:
        """As a shell reports it, which tells signal N as 128 + N; None while it runs."""
        code = self._process.poll()
        if code is not None and code < 0:
            return 128 - code
        return code

    @contextlib.contextmanager
    def supervised(self) -> Iterator[None]:
        """Leave Ctrl-C to the command (same terminal), pass SIGTERM on, and end the command when the watch fails."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        on_terminate = signal.signal(signal.SIGTERM, lambda *_: self._process.terminate())
        try:
            yield
        except BaseException:
            self._process.terminate()
            raise
        finally:
            signal.signal(signal.SIGINT, before)
            signal.signal(signal.SIGTERM, on_terminate)


class RunningProcess:
    """A process that was started elsewhere."""

    def __init__(self, pid: int, system: System) -> None:
        self.pid, self._system = pid, system
        self.name = f"process {pid}"
        if not system.listdir("/proc"):
            raise SplatfixError.of("certify.cannot-watch")
        if self.ended():
            raise SplatfixError.of("certify.no-such-process", pid=pid)

    def ended(self) -> bool:
        """Whether the process is gone."""
        return not alive(self._system, self.pid)

    def exit_code(self) -> None:
        """Only its parent is told."""


Target: TypeAlias = StartedCommand | RunningProcess
"""What is watched."""


def target_of(
    arguments: tuple[str, ...],
    *,
    quiet: bool = False,
    system: System | None = None,
    environment: Mapping[str, str] | None = None,
) -> Target:
    """Return the process of an ID, or start a command; ``quiet`` sends its standard output to standard error.

    Raises:
        SplatfixError: ``options-after-number``, ``no-such-process``, ``cannot-start`` (exit code 2), ``cannot-watch`` (3).
    """
    if arguments[0].isdigit():
        if len(arguments) > 1:
            options, pid = arguments[1:], arguments[0]
            todo = (run("splatfix", "monitor", *options, pid, text="Put options first"),)
            words = " ".join(options)
            raise SplatfixError.of("certify.options-after-number", words=words, pid=pid, todo=todo)
        return RunningProcess(int(arguments[0]), system or System())
    return StartedCommand(arguments, sys.stderr.fileno() if quiet else None, environment)


class MemorySample(Struct, frozen=True):
    """One sample; None was not measured. Memory in GiB, as in the trainer's own series: of VRAM the whole process's, with the
    allocator's reserve and the CUDA context; what tensors use (``vram_allocated_gb``) is not seen from outside."""

    seconds: float
    vram_allocated_gb: float | None
    vram_reserved_gb: float | None
    vram_creep_gb: float | None
    vram_used_share: float | None
    """Used share of the fullest GPU that the process uses, by all processes."""
    gpu_utilisation: float | None
    rss_gb: float | None
    cpu_percent: float | None
    """100 is one core."""


class Summary(Struct, frozen=True):
    """The whole watch. ``exit_code`` is the command's, or None for a process that was started elsewhere."""

    target: str
    seconds: float
    samples: int
    exit_code: int | None
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
        self._before: tuple[float, float] | None = None
        self._unnamed_before = {gpu.index: self._unnamed(gpu) for gpu in gpus.read()}
        self.settled: float | None = None
        """The baseline in GiB; None while it has not settled."""
        self.samples: list[MemorySample] = []
        self.notes: list[str] = []
        if gpus.problem:
            self._note(f"VRAM is not measured: {gpus.problem}")

    def take(self, seconds: float, pid: int, host: HostUse | None) -> MemorySample:
        """One sample at ``seconds`` since the start."""
        family, rss = {pid}, None
        if host is not None:
            family, rss = set(host.processes), host.rss / GIB
        readings = self._gpus.read()
        if self._gpus.problem:
            self._note(f"VRAM is not measured: {self._gpus.problem}")
        held, cards = self._held(readings, family)
        shares = [round(gpu.used / gpu.total, 4) for gpu in cards if gpu.used is not None and gpu.total]
        busy = [gpu.utilisation for gpu in cards if gpu.utilisation is not None]
        sample = MemorySample(
            seconds=round(seconds, 3),
            vram_allocated_gb=None,
            vram_reserved_gb=held,
            vram_creep_gb=self._creep(held),
            vram_used_share=max(shares, default=None),
            gpu_utilisation=max(busy, default=None),
            rss_gb=rss,
            cpu_percent=self._cpu(seconds, host),
        )
        self.samples.append(sample)
        return sample

    def _held(self, readings: tuple[GpuUse, ...], family: set[int]) -> tuple[float | None, list[GpuUse]]:
        """GiB held on all GPUs together, and the GPUs that the process uses."""
        if not readings:
            return None, []
        cards, sizes = [], []
        for gpu in readings:
            own = family & set(gpu.processes)
            sizes += [gpu.processes[pid] for pid in own]
            if own:
                cards.append(gpu)
        told = [size for size in sizes if size is not None]
        if sizes and len(told) == len(sizes):
            return sum(told) / GIB, cards
        # The driver hides this process or its memory: take the growth that no visible process accounts for.
        grown, total = [], 0
        for gpu in readings:
            growth = self._unnamed(gpu) - self._unnamed_before.get(gpu.index, 0)
            if growth >= NOTICED:
                grown.append(gpu)
                total += growth
        if grown or sizes:
            self._note(HIDDEN)
        return total / GIB, grown

    def _unnamed(self, gpu: GpuUse) -> int:
        """Bytes in use that belong to no visible process."""
        # inside a container the driver may report the host's process IDs, which mean nothing there
        pids = [pid for pid in gpu.processes if not self._system.exists("/proc") or alive(self._system, pid)]
        return max(0, (gpu.used or 0) - sum(gpu.processes[pid] or 0 for pid in pids))

    def _creep(self, held: float | None) -> float | None:
        if held is None:
            return None
        recent = [item.vram_reserved_gb or 0.0 for item in self.samples[1 - SETTLED_OVER :]] + [held]
        even = min(recent) > 0.0 and max(recent) - min(recent) <= SETTLED_WITHIN * max(recent)
        if self.settled is None and len(recent) == SETTLED_OVER and even:
            self.settled = statistics.median(recent)
        if self.settled is None:
            return None
        return max(0.0, held - self.settled)

    def _cpu(self, seconds: float, host: HostUse | None) -> float | None:
        before, self._before = self._before, None
        if host is None:
            return None
        self._before = (seconds, host.cpu_seconds)
        if before is None or seconds <= before[0]:
            return None
        # A child that ended takes its time out of the sum.
        return round(max(0.0, 100.0 * (host.cpu_seconds - before[1]) / (seconds - before[0])), 1)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def watch(
    target: Target,
    folder: Path,
    *,
    interval: float = 1.0,
    tensorboard: bool = False,
    gpus: NvmlMeter | None = None,
    system: System | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Summary:
    """Watch until the target ends (or Ctrl-C), and write ``metrics.jsonl`` and ``summary.json`` into ``folder``, with
    ``tensorboard`` also event files; files of an earlier watch move to ``previous``."""
    machine = system or System()
    started = time.monotonic()
    with contextlib.ExitStack() as open_now:
        if isinstance(target, StartedCommand):
            open_now.enter_context(target.supervised())
        set_aside(make_folder(folder), ("metrics.jsonl", "summary.json", "tensorboard"))
        meter = Meter(gpus or NvmlMeter(), machine)
        series = open_now.enter_context((folder / "metrics.jsonl").open("wb", buffering=0))
        board = None
        if tensorboard:
            # it works without TensorFlow and torch
            from tensorboard.summary.writer.event_file_writer import EventFileWriter

            writer = EventFileWriter(str(folder / "tensorboard"), flush_secs=1)
            board = open_now.enter_context(contextlib.closing(writer))
        written = True
        open_now.enter_context(contextlib.suppress(KeyboardInterrupt))
        while not target.ended():
            host = host_use(machine, target.pid)
            sample = meter.take(time.monotonic() - started, target.pid, host)
            try:
                if written:
                    series.write(f"{json.dumps(asdict(sample))}\n".encode())
                    if board is not None:
                        _add_to_board(board, sample, len(meter.samples))
            except OSError as error:  # a full disk ends the series, not the training
                written = False
                meter.notes.append(f"the series ends at {sample.seconds:.0f} s: {error.strerror or error}")
            until = time.monotonic() + interval
            while not target.ended() and (left := until - time.monotonic()) > 0:
                sleep(min(left, 0.1))
    summary = summarize(target.name, target.exit_code(), time.monotonic() - started, meter, folder)
    write_json(folder / "summary.json", to_json(summary))
    return summary


def require_tensorboard() -> None:
    """Raise ``tensorboard-missing`` (exit code 3) where TensorBoard's own writer of event files is not beside splatfix."""
    if importlib.util.find_spec("tensorboard") is None:
        raise SplatfixError.of("certify.tensorboard-missing", executable=sys.executable)


def _add_to_board(board: Any, sample: MemorySample, step: int) -> None:
    """One value for each measurement, under the names of the trainer's own TensorBoard series."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary as Scalars

    values = []
    for name, value in asdict(sample).items():
        if name != "seconds" and value is not None:
            group = "memory" if name.endswith("_gb") else "load"
            values.append(Scalars.Value(tag=f"{group}/{name}", simple_value=value))
    board.add_event(Event(wall_time=time.time(), step=step, summary=Scalars(value=values)))


def summarize(name: str, exit_code: int | None, seconds: float, meter: Meter, folder: Path) -> Summary:
    """Peaks, means and shares of all samples of the target of that name."""
    rows, notes = meter.samples, list(meter.notes)

    def known(measure: str) -> list[float]:
        return [value for row in rows if (value := getattr(row, measure)) is not None]

    held, rss = known("vram_reserved_gb"), known("rss_gb")
    above = [float(share > FULL) for share in known("vram_used_share")]
    if not rss and rows:
        notes.append(NO_PROC)
    if any(held) and meter.settled is None:
        notes.append(
            f"VRAM never stayed within {SETTLED_WITHIN:.0%} over {SETTLED_OVER} samples: no baseline"
        )
    return Summary(
        target=name,
        seconds=round(seconds, 1),
        samples=len(rows),
        exit_code=exit_code,
        vram_peak_gb=max(held, default=None),
        vram_settled_gb=meter.settled,
        vram_creep_gb=max(known("vram_creep_gb"), default=None),
        share_above_97_percent=_mean(above),
        gpu_utilisation_mean=_mean(known("gpu_utilisation")),
        rss_peak_gb=max(rss, default=None),
        cpu_percent_mean=_mean(known("cpu_percent")),
        notes=tuple(notes),
        folder=str(folder),
    )


def _mean(values: list[float]) -> float | None:
    if not values:
        return None
    return statistics.fmean(values)
