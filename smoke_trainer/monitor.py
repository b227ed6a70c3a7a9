"""Times, losses, gradient norms and counts of every iteration, to metrics.jsonl and TensorBoard.

Nothing here synchronises a GPU inside an iteration: scalars stay on the device and times are CUDA events until a few
iterations are written at once.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from smoke_trainer.densify.strategies import DensifyEvent
from smoke_trainer.errors import TrainingFailed, UsageError
from smoke_trainer.memory import PeakMemory, resident_gb
from smoke_trainer.metrics import Loss, psnr_from
from smoke_trainer.model import GROUPS, Gaussians
from smoke_trainer.timing import OtherPrograms, StepTimer

FLUSH_EVERY = 10  # iterations; also the latest that a loss that is not a number is detected
WARM_UP = FLUSH_EVERY  # iterations that speed leaves out: kernels are loaded and compiled, allocators fill their caches
TRAIN_SERIES = ("loss", "l1", "ssim", "psnr", "gaussians", "cloned", "split", "pruned")
SMOOTHED_OVER = 10  # iterations at either end, averaged for the report
WINDOWS = 10  # parts of a run, for the trend of its loss


class _Step(NamedTuple):
    """What one iteration left to be written."""

    plain: Dict[str, Any]
    scalars: Dict[str, Tensor]
    marks: List[Tuple[str, Any]]
    processor: Optional[float]  # ms


class GradientStats:
    """Norms of each parameter group's gradient over the run, and which Gaussians were reached by one."""

    def __init__(self) -> None:
        self.norms: Dict[str, List[float]] = {name: [] for name in GROUPS}
        self._reached: Optional[Tensor] = None
        self._reached_steps = 0

    def reach(self, model: Gaussians) -> None:
        """After a backward pass: which Gaussians have a gradient, gathered until their number changes; no GPU is waited for."""
        grads = [model.params[name].grad for name in ("xyz", "opacity")]
        known = [(grad != 0).any(dim=1) for grad in grads if grad is not None]
        if not known:
            return
        now = torch.stack(known).any(dim=0)
        same = self._reached is not None and len(self._reached) == len(now)
        self._reached = now | self._reached if same and self._reached is not None else now
        self._reached_steps = self._reached_steps + 1 if same else 1

    def reached(self) -> Dict[str, Any]:
        """`share` of the Gaussians that had a gradient within the last `steps`, in which their number stood."""
        share = None if self._reached is None else float(self._reached.float().mean())
        return {"share": share, "steps": self._reached_steps}

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
        self.others = OtherPrograms()
        self.gradients = GradientStats()
        self.losses: List[float] = []
        self.changed = 0  # the last iteration that added or removed Gaussians
        self.costs: List[float] = []  # ms of each iteration: of the processor, or of the GPU
        self.phases: Dict[str, float] = {}  # seconds of each phase so far
        self.latest: Dict[str, Any] = {}  # what a progress line shows of the latest written iteration
        self.counts = {"cloned": 0, "split": 0, "pruned": 0}
        self.opacity_resets = 0
        self.peak_gaussians = 0
        self._device = device
        self._pending: List[_Step] = []
        self._explained = 0
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
        self.counts = {name: self.counts[name] + getattr(event, name) for name in self.counts}
        self.opacity_resets += int(event.opacity_reset)
        self.peak_gaussians = max(self.peak_gaussians, gaussians)
        if event.cloned or event.split or event.pruned:
            self.changed = iteration
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
        self._pending.append(_Step(plain, scalars, self.timer.marks(), self.timer.processor_ms()))
        if len(self._pending) >= FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Write what is pending; raises TrainingFailed if a loss is not a number."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        pending, self._pending = self._pending, []
        held = self.memory.sample(pending[-1].plain["iteration"], self._explained) if pending else {}
        for plain, scalars, marks, processor in pending:
            values = {name: float(value) for name, value in scalars.items()}
            phases = self.timer.milliseconds(marks)
            self.costs.append(sum(phases.values()) if processor is None else processor)
            for name, value in phases.items():
                self.phases[name] = self.phases.get(name, 0.0) + value / 1e3
            norms = {name[5:]: value for name, value in values.items() if name.startswith("grad/")}
            self.gradients.add(norms)
            self.losses.append(values["loss"])
            line = dict(plain, loss=_json_number(values["loss"]), l1=_json_number(values["l1"]))
            line["ssim"] = _json_number(values["ssim"])
            line["psnr"] = _json_number(psnr_from(values["squared_error"]))
            line["gradients"] = {name: _json_number(value) for name, value in norms.items()}
            line["ms"] = {name: round(value, 3) for name, value in phases.items()}
            line.update(held)
            self._file.write(json.dumps(line) + "\n")
            self._to_board(line)
            self.latest = {name: line[name] for name in ("psnr", "vram_allocated_gb") if name in line}
        self.others.sample(len(self.costs))
        host = held.get("rss_gb", resident_gb())
        if host is not None:
            self.latest["rss_gb"] = round(host, 3)
        self._file.flush()
        bad = next(
            (step.plain["iteration"] for step in pending if not math.isfinite(float(step.scalars["loss"]))),
            None,
        )
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

    def loss_windows(self) -> List[float]:
        """Mean losses of ten equal parts of the run, in order; [] for a run below ten iterations."""
        size = len(self.losses) // WINDOWS
        parts = [self.losses[place * size : (place + 1) * size] for place in range(WINDOWS)]
        return [statistics.fmean(part) for part in parts] if size else []

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
