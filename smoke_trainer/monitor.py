"""Times, losses, gradient norms and counts of every iteration, to metrics.jsonl.

Nothing here synchronises a GPU inside an iteration: scalars stay on the device and times are CUDA events until a few
iterations are written at once.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, DefaultDict, Dict, Iterator, List, Optional, Tuple

import torch
from torch import Tensor

from smoke_trainer.backends import to_device
from smoke_trainer.densify import DensifyEvent
from smoke_trainer.errors import CPU_HINT, TrainingFailed
from smoke_trainer.memory import GIB, PeakMemory, resident
from smoke_trainer.metrics import Loss, psnr_from
from smoke_trainer.model import GROUPS, Gaussians
from smoke_trainer.updates import ReachCheck, UpdateCheck

FLUSH_EVERY = 10  # iterations; also the latest that a loss that is not a number is detected
WARM_UP = FLUSH_EVERY  # iterations that speed leaves out: kernels are loaded and compiled, allocators fill their caches


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

    def __init__(self, out: Path, device: torch.device) -> None:
        # moments of this iteration: by the clock on a CPU, events on a GPU
        self.marks: List[Tuple[str, Any]] = []
        self.memory = PeakMemory(device)
        self.updates, self.reached = UpdateCheck(), ReachCheck()
        self.phases: DefaultDict[str, float] = defaultdict(float)  # seconds of each so far
        self.latest: Dict[str, float] = {}  # what a progress line has of the latest recorded iteration
        self._device = device
        # Of each iteration not written yet: its line so far, losses and norms on the device, and the marks of its timer.
        self._pending: List[Tuple[Dict[str, Any], Loss, Dict[str, Tensor], List[Tuple[str, Any]]]] = []
        self._explained = 0
        self._file = (out / "metrics.jsonl").open("a+", encoding="utf-8")

    def start(self) -> None:
        """Begin an iteration."""
        self.marks = []
        self.lap("start")

    def lap(self, phase: str) -> None:
        """End a phase of this iteration."""
        moment: Any = time.perf_counter()
        if self._device.type == "cuda":
            moment = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]
            moment.record()
        self.marks.append((phase, moment))

    def history(self) -> str:
        """Return metrics.jsonl, a line for each iteration so far, also of an earlier run that this one resumes."""
        self.flush()
        self._file.seek(0)
        return self._file.read()

    def begin_with(self, history: str) -> None:
        """Let metrics.jsonl begin with that of an earlier run."""
        self._file.truncate(0)
        self._file.write(history)

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
        line = {"iteration": iteration, "gaussians": gaussians, **vars(event)}
        scalars = Loss(*(scalar.detach() for scalar in loss))  # without the graph, which would be kept alive
        self._pending.append((line, scalars, norms, self.marks))
        self.lap("record")
        if len(self._pending) >= FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Write what is pending; raises TrainingFailed if a loss is not a number."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        began = time.perf_counter()  # from here on a GPU waits for the host, whose clock holds for both
        pending, self._pending = self._pending, []
        memory: Dict[str, float] = {}
        numbers: Iterator[float] = iter(())
        if pending:
            memory = self.memory.sample(pending[-1][0]["iteration"], self._explained)
            # They leave the GPU together: each read alone waits for the driver, under WSL2 for up to a millisecond.
            scalars = [scalar for _, loss, norms, _ in pending for scalar in (*loss, *norms.values())]
            together = torch.stack([to_device(scalar.float(), self._device) for scalar in scalars])
            numbers = iter(together.tolist())
        failed: List[int] = []
        for line, loss, norms, marks in pending:
            total, l1, ssim, squared_error = (next(numbers) for _ in loss)
            gradients = {name: next(numbers) for name in norms}
            milliseconds = {}
            for (_, begin), (name, end) in zip(marks, marks[1:]):
                on_gpu = self._device.type == "cuda"
                milliseconds[name] = begin.elapsed_time(end) if on_gpu else 1e3 * (end - begin)
                self.phases[name] += milliseconds[name] / 1e3
            if not math.isfinite(total):
                failed.append(line["iteration"])
            line.update(
                loss=_json_number(total),
                l1=_json_number(l1),
                ssim=_json_number(ssim),
                psnr=_json_number(psnr_from(squared_error)),
                gradients={name: _json_number(norm) for name, norm in gradients.items()},
                ms={name: round(value, 3) for name, value in milliseconds.items()},
                **memory,
            )
            self._file.write(json.dumps(line) + "\n")
            self.latest = {name: line[name] for name in ("loss", "psnr", "vram_allocated_gb") if name in line}
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

    def close(self) -> None:
        """Close the file. On a full disk the rest stays unwritten; the run has reported that already."""
        with contextlib.suppress(OSError):
            self._file.close()


def _json_number(value: float) -> Optional[float]:
    """None for NaN and infinity, which JSON does not have."""
    if not math.isfinite(value):
        return None
    return value
