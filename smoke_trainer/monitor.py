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
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from smoke_trainer.densify.strategies import DensifyEvent
from smoke_trainer.errors import TrainingFailed, UsageError
from smoke_trainer.memory import PeakMemory
from smoke_trainer.metrics import Loss, psnr_from
from smoke_trainer.model import GROUPS, Gaussians

FLUSH_EVERY = 10  # iterations; also the latest that a loss that is not a number is detected
TRAIN_SERIES = ("loss", "l1", "ssim", "psnr", "gaussians", "cloned", "split", "pruned")
SMOOTHED_OVER = 10  # iterations at either end, averaged for the report


class StepTimer:
    """Times the phases of one iteration: by the clock on a CPU, by events on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: List[Tuple[str, Any]] = []

    def start(self) -> None:
        """Start an iteration."""
        self._marks = [("start", self._now())]

    def lap(self, name: str) -> None:
        """End the phase of that name."""
        self._marks.append((name, self._now()))

    def marks(self) -> List[Tuple[str, Any]]:
        """Everything since `start`, for `milliseconds`."""
        return self._marks

    def milliseconds(self, marks: List[Tuple[str, Any]]) -> Dict[str, float]:
        """Duration of each phase; on a GPU only after a synchronisation."""
        pairs = zip(marks, marks[1:])
        if self._cuda:
            return {name: begin.elapsed_time(end) for (_, begin), (name, end) in pairs}
        return {name: 1e3 * (end - begin) for (_, begin), (name, end) in pairs}

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]
        event.record()
        return event


class GradientStats:
    """Norms of each parameter group's gradient over the run."""

    def __init__(self) -> None:
        self.norms: Dict[str, List[float]] = {name: [] for name in GROUPS}

    def add(self, norms: Dict[str, float]) -> None:
        """Add one iteration; `norms` omits a group that has no gradient (higher SH at degree 0)."""
        for name, value in norms.items():
            self.norms[name].append(value)

    def as_json(self) -> Dict[str, Any]:
        """For result.json: number of steps, of zero and non-finite ones; min, median, max of the finite norms."""
        report: Dict[str, Any] = {}
        for name, values in self.norms.items():
            finite = [value for value in values if math.isfinite(value)]
            report[name] = {
                "steps": len(values),
                "zero_steps": sum(value == 0.0 for value in finite),
                "non_finite_steps": len(values) - len(finite),
                "min": min(finite) if finite else None,
                "median": statistics.median(finite) if finite else None,
                "max": max(finite) if finite else None,
            }
        return report


def gradient_norms(model: Gaussians) -> Dict[str, Tensor]:
    """The norm of every group's gradient, a scalar tensor; higher SH are omitted while only degree 0 is used."""
    norms = {}
    for name in GROUPS:
        if name == "f_rest" and (model.sh_degree == 0 or model.params[name].numel() == 0):
            continue
        grad = model.params[name].grad
        norms[name] = torch.zeros(()) if grad is None else grad.norm()
    return norms


class Monitor:
    """Records every iteration and keeps what the report needs."""

    def __init__(
        self, out: Path, device: torch.device, tensorboard: bool = False, append: bool = False
    ) -> None:
        self.timer = StepTimer(device)
        self.memory = PeakMemory(device)
        self.gradients = GradientStats()
        self.losses: List[float] = []
        self.latest: Dict[str, Any] = {}  # what a progress line shows of the latest written iteration
        self.counts = {"cloned": 0, "split": 0, "pruned": 0}
        self.opacity_resets = 0
        self.peak_gaussians = 0
        self._device = device
        self._pending: List[Tuple[Dict[str, Any], Dict[str, Tensor], List[Tuple[str, Any]]]] = []
        self._file = (out / "metrics.jsonl").open("a" if append else "w", encoding="utf-8")
        self._out = out
        self._board = _summary_writer(out) if tensorboard else None

    def rewind(self, iteration: int) -> None:
        """Drop the records after an iteration, for a run that resumes there in the folder of a run that went further."""
        if self._board is not None:
            self._board.close()
            self._board = _summary_writer(self._out, purge_step=iteration + 1)
        self._file.close()
        path = Path(self._file.name)
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        path.write_text("".join(line for line in lines if _iteration_of(line) <= iteration), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def record(
        self, iteration: int, loss: Loss, norms: Dict[str, Tensor], gaussians: int, event: DensifyEvent
    ) -> None:
        """Record one iteration; it is written, and checked for finite values, every FLUSH_EVERY iterations."""
        self.counts = {name: self.counts[name] + getattr(event, name) for name in self.counts}
        self.opacity_resets += int(event.opacity_reset)
        self.peak_gaussians = max(self.peak_gaussians, gaussians)
        plain = {
            "iteration": iteration,
            "gaussians": gaussians,
            "cloned": event.cloned,
            "split": event.split,
            "pruned": event.pruned,
            "opacity_reset": event.opacity_reset,
        }
        scalars = {
            "loss": loss.total.detach(),
            "l1": loss.l1.detach(),
            "ssim": loss.ssim.detach(),
            "squared_error": loss.squared_error,
        }
        scalars.update({f"grad/{name}": norm for name, norm in norms.items()})
        self._pending.append((plain, scalars, self.timer.marks()))
        if len(self._pending) >= FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Write what is pending; raises TrainingFailed if a loss is not a number."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        pending, self._pending = self._pending, []
        for plain, scalars, marks in pending:
            values = {name: float(value) for name, value in scalars.items()}
            norms = {name[5:]: value for name, value in values.items() if name.startswith("grad/")}
            self.gradients.add(norms)
            self.losses.append(values["loss"])
            line = dict(plain, loss=_json_number(values["loss"]), l1=_json_number(values["l1"]))
            line["ssim"] = _json_number(values["ssim"])
            line["psnr"] = _json_number(psnr_from(values["squared_error"]))
            line["gradients"] = {name: _json_number(value) for name, value in norms.items()}
            line["ms"] = {name: round(value, 3) for name, value in self.timer.milliseconds(marks).items()}
            line.update(self.memory.sample(plain["iteration"]))
            self._file.write(json.dumps(line) + "\n")
            self._to_board(line)
            self.latest = {name: line[name] for name in ("psnr", "vram_allocated_gb") if name in line}
        self._file.flush()
        bad = next((p["iteration"] for p, s, _ in pending if not math.isfinite(float(s["loss"]))), None)
        if bad is not None:
            raise TrainingFailed(
                f"the loss is not a number at iteration {bad}",
                "the renderer or SSIM returned infinite values, or a gradient exploded",
                "run again with --renderer torch on the CPU: if that works, the GPU kernels are at fault",
            )

    def smoothed_loss(self) -> Tuple[Optional[float], Optional[float]]:
        """Mean loss over the first and over the last iterations."""
        first, last = self.losses[:SMOOTHED_OVER], self.losses[-SMOOTHED_OVER:]
        return (statistics.fmean(first), statistics.fmean(last)) if first else (None, None)

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
    return value if math.isfinite(value) else None


def _summary_writer(out: Path, purge_step: Optional[int] = None) -> Any:
    """torch's writer; readers ignore what earlier files in the folder have from `purge_step` on."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError(
            "--tensorboard needs the package tensorboard, which is not installed",
            "torch writes event files with it",
            "pip install tensorboard, or omit the option: metrics.jsonl holds the same series",
        ) from None
    return SummaryWriter(str(out / "tensorboard"), purge_step=purge_step)  # type: ignore[no-untyped-call, unused-ignore]
