"""Times, losses, gradient norms and counts of every iteration, to metrics.jsonl and TensorBoard.

Nothing here synchronises a GPU inside an iteration: scalars stay on the device and times are CUDA events until a few
iterations are written at once.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, DefaultDict, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from smoke_trainer.backends import to_device
from smoke_trainer.densify.strategies import DensifyEvent
from smoke_trainer.errors import CPU_HINT, TrainingFailed, UsageError
from smoke_trainer.memory import GIB, PeakMemory, resident
from smoke_trainer.metrics import Loss, psnr_from
from smoke_trainer.model import GROUPS, Gaussians
from smoke_trainer.record import GroupGradients, Reached, TrainLoss
from smoke_trainer.updates import UpdateCheck

FLUSH_EVERY = 10  # iterations; also the latest that a loss that is not a number is detected
WARM_UP = FLUSH_EVERY  # iterations that speed leaves out: kernels are loaded and compiled, allocators fill their caches
TRAIN_SERIES = ("loss", "l1", "ssim", "psnr", "gaussians", "cloned", "split", "pruned")
SMOOTHED_OVER = 10  # iterations at either end, averaged for the report


class StepTimer:
    """Times the phases of one iteration: by the clock on a CPU, by events on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.marks: List[Tuple[str, Any]] = []

    def start(self) -> None:
        self.marks = [("start", self._now())]

    def lap(self, name: str) -> None:
        self.marks.append((name, self._now()))

    def milliseconds(self, marks: List[Tuple[str, Any]]) -> Dict[str, float]:
        """Duration of each phase, given the `marks` of an iteration; on a GPU only after a synchronisation."""
        durations = {}
        for (_, begin), (name, end) in zip(marks, marks[1:]):
            if self._cuda:
                durations[name] = begin.elapsed_time(end)
            else:
                durations[name] = 1e3 * (end - begin)
        return durations

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]
        event.record()
        return event


class _Step(NamedTuple):
    """What one iteration left to be written."""

    iteration: int
    gaussians: int
    event: DensifyEvent
    loss: Loss
    norms: Dict[str, Tensor]
    marks: List[Tuple[str, Any]]


def gradient_norms(model: Gaussians) -> Dict[str, Tensor]:
    """The norm of every group's gradient, a scalar tensor; higher SH are omitted while only degree 0 is used."""
    norms = {}
    for name in GROUPS:
        if name == "f_rest" and (model.sh_degree == 0 or model.params[name].numel() == 0):
            continue
        grad = model.params[name].grad
        # A group that the renderer gave no gradient must show in the report, as zeros.
        norms[name] = torch.zeros(())
        if grad is not None:
            norms[name] = grad.norm()
    return norms


class Monitor:
    """Records every iteration and keeps what the report needs."""

    def __init__(
        self, out: Path, device: torch.device, tensorboard: bool = False, append: bool = False
    ) -> None:
        self.timer = StepTimer(device)
        self.memory = PeakMemory(device)
        self.updates = UpdateCheck()
        self.losses: List[float] = []
        self.norms: Dict[str, List[float]] = {name: [] for name in GROUPS}  # of each group's gradient
        self.phases: DefaultDict[str, float] = defaultdict(float)  # seconds of each so far
        self.latest: Dict[str, float] = {}  # what a progress line has of the latest recorded iteration
        self.counts = {"cloned": 0, "split": 0, "pruned": 0}
        self.opacity_resets = 0
        self.peak_gaussians = 0
        self._device = device
        self._reached: Optional[Tensor] = None
        self._reached_steps = 0
        self._pending: List[_Step] = []
        self._explained = 0
        self._out = out
        self._path = out / "metrics.jsonl"
        self._file = self._path.open("a" if append else "w", encoding="utf-8")
        self._board: Any = None
        if tensorboard:
            self._board = _summary_writer(out)

    def reach(self, model: Gaussians) -> None:
        """After a backward pass: which Gaussians have a gradient, gathered until their number changes; no GPU is waited for."""
        grads = [model.params[name].grad for name in ("xyz", "opacity")]
        known = [(grad != 0).any(dim=1) for grad in grads if grad is not None]
        if not known:
            return
        now = torch.stack(known).any(dim=0)
        # New rows stand for other Gaussians than the old ones: the gathering starts again.
        if self._reached is not None and len(self._reached) == len(now):
            self._reached = now | self._reached
            self._reached_steps += 1
        else:
            self._reached = now
            self._reached_steps = 1

    def reached(self) -> Reached:
        """Return the share of the Gaussians that a gradient reached in the last steps, in which their number stood."""
        if self._reached is None:
            return Reached()
        return Reached(float(self._reached.float().mean()), self._reached_steps)

    def gradients(self) -> Dict[str, GroupGradients]:
        """Return the number of each group's steps, of zero and non-finite ones; min, median and max of the finite norms."""
        groups = {}
        for name, norms in self.norms.items():
            finite = [norm for norm in norms if math.isfinite(norm)]
            groups[name] = GroupGradients(
                steps=len(norms),
                zero_steps=finite.count(0.0),
                non_finite_steps=len(norms) - len(finite),
                min=min(finite, default=None),
                median=statistics.median(finite) if finite else None,
                max=max(finite, default=None),
            )
        return groups

    def rewind(self, iteration: int) -> None:
        """Drop the records after an iteration, for a run that resumes there in the folder of a run that went further."""
        if self._board is not None:
            self._board.close()
            self._board = _summary_writer(self._out, purge_step=iteration + 1)
        self._file.close()
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        kept = [line for line in lines if _iteration_of(line) <= iteration]
        self._path.write_text("".join(kept), encoding="utf-8")
        self._file = self._path.open("a", encoding="utf-8")

    def record(
        self,
        iteration: int,
        loss: Loss,
        norms: Dict[str, Tensor],
        gaussians: int,
        event: DensifyEvent,
        held: int = 0,
    ) -> None:
        """Record one iteration; it is written, and checked for finite values, every FLUSH_EVERY iterations.

        `held`: bytes of the model, its moments, and all else that the device is known to hold.
        """
        self._explained = held
        self.counts["cloned"] += event.cloned
        self.counts["split"] += event.split
        self.counts["pruned"] += event.pruned
        self.opacity_resets += int(event.opacity_reset)
        self.peak_gaussians = max(self.peak_gaussians, gaussians)
        scalars = Loss(*(scalar.detach() for scalar in loss))  # without the graph, which would be kept alive
        self._pending.append(_Step(iteration, gaussians, event, scalars, norms, self.timer.marks))
        self.timer.lap("record")
        if len(self._pending) >= FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Write what is pending; raises TrainingFailed if a loss is not a number."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        began = time.perf_counter()  # from here on a GPU waits for the host, whose clock holds for both
        pending, self._pending = self._pending, []
        memory: Dict[str, float] = {}
        if pending:
            memory = self.memory.sample(pending[-1].iteration, self._explained)
        failed: List[int] = []
        for step, scalars in zip(pending, self._scalars(pending)):
            line = {**self._measured(step, scalars), **memory}
            self._file.write(json.dumps(line) + "\n")
            self._to_board(line)
            self.latest = {name: line[name] for name in ("psnr", "vram_allocated_gb") if name in line}
            if line["loss"] is None:
                failed.append(step.iteration)
        if (held := resident()) is not None:
            self.latest["rss_gb"] = round(held / GIB, 3)
        self._file.flush()
        self.phases["record"] += time.perf_counter() - began
        if failed:
            raise TrainingFailed(
                f"the loss is not a number at iteration {failed[0]}",
                "the renderer or SSIM returned infinite values, or a gradient exploded",
                CPU_HINT,
            )

    def _scalars(self, steps: List[_Step]) -> List[List[float]]:
        """Losses and norms of each step, in their order. They leave the GPU together: each read alone waits for the
        driver, under WSL2 for up to a millisecond."""
        rows = [[*step.loss, *step.norms.values()] for step in steps]
        if not rows:
            return []
        together = torch.stack([to_device(scalar.float(), self._device) for row in rows for scalar in row])
        numbers = iter(together.tolist())
        return [[next(numbers) for _ in row] for row in rows]

    def _measured(self, step: _Step, scalars: List[float]) -> Dict[str, Any]:
        """One iteration, with its losses and norms, as a line of metrics.jsonl, and into what the report sums up."""
        total, l1, ssim, squared_error = scalars[: len(step.loss)]
        milliseconds = self.timer.milliseconds(step.marks)
        for name, value in milliseconds.items():
            self.phases[name] += value / 1e3
        norms = dict(zip(step.norms, scalars[len(step.loss) :]))
        for name, norm in norms.items():
            self.norms[name].append(norm)
        self.losses.append(total)
        return {
            "iteration": step.iteration,
            "gaussians": step.gaussians,
            "cloned": step.event.cloned,
            "split": step.event.split,
            "pruned": step.event.pruned,
            "opacity_reset": step.event.opacity_reset,
            "loss": _json_number(total),
            "l1": _json_number(l1),
            "ssim": _json_number(ssim),
            "psnr": _json_number(psnr_from(squared_error)),
            "gradients": {name: _json_number(norm) for name, norm in norms.items()},
            "ms": {name: round(value, 3) for name, value in milliseconds.items()},
        }

    def train_loss(self) -> TrainLoss:
        """Return the mean loss over the first and over the last iterations."""
        if not self.losses:
            return TrainLoss()
        first, last = self.losses[:SMOOTHED_OVER], self.losses[-SMOOTHED_OVER:]
        return TrainLoss(statistics.fmean(first), statistics.fmean(last))

    def close(self) -> None:
        """Close the files. On a full disk the rest stays unwritten; the run has reported that already."""
        with contextlib.suppress(OSError):
            self._file.close()
        if self._board is not None:
            self._board.close()

    def _to_board(self, line: Dict[str, Any]) -> None:
        if self._board is None:
            return
        series = {f"train/{name}": line[name] for name in TRAIN_SERIES}
        series.update({f"gradients/{name}": value for name, value in line["gradients"].items()})
        series.update({f"ms/{name}": value for name, value in line["ms"].items()})
        series.update({f"memory/{name}": value for name, value in line.items() if name.startswith("vram_")})
        for name, value in series.items():
            if value is not None:
                self._board.add_scalar(name, value, line["iteration"])


def _iteration_of(line: str) -> float:
    """The iteration of a metrics line; infinite for a line that was cut short."""
    try:
        return float(json.loads(line)["iteration"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _json_number(value: float) -> Optional[float]:
    """None for NaN and infinity, which JSON does not have."""
    if not math.isfinite(value):
        return None
    return value


def _summary_writer(out: Path, purge_step: Optional[int] = None) -> Any:
    """torch's writer; readers ignore what earlier files in the folder have from `purge_step` on."""
    without = "or omit the option: metrics.jsonl holds the same series"
    try:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(out / "tensorboard"), purge_step=purge_step)  # type: ignore[no-untyped-call, unused-ignore]
    except ImportError:
        raise UsageError(
            "--tensorboard needs the package tensorboard, which is not installed",
            "torch writes event files with it",
            f"pip install tensorboard, {without}",
        ) from None
    except RuntimeError as error:  # "can't start new thread": a limit of processes or of memory
        raise UsageError(
            f"--tensorboard cannot write its files: {error}",
            "its writer is a thread, and this process may start no further one",
            f"raise the limit (ulimit -u, --pids-limit), {without}",
        ) from None
