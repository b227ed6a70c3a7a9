"""Memory of a run: peaks of resident and CUDA memory, growth, spill to host memory under WSL2."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import sys
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import torch

from smoke_trainer.record import CudaMemory, CudaPeak, HostPeaks, Memory, MemoryGrowth

GIB = float(1 << 30)
MOST_MOMENTS = 300  # of a run, whose every pair is compared


class PeakMemory:
    """Peaks of resident and of CUDA memory, apart for training and evaluation, and what grows beyond the model."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._start = resident()  # Python, torch and its libraries
        self._phase = "setup"
        self._tells_phases = False
        self._host: Dict[str, int] = {}
        self._peaks = {"train": CudaPeak(), "eval": CudaPeak()}
        self._used_share: Optional[float] = None
        self.unexplained: List[Tuple[int, int]] = []  # iterations, and what was held beyond the model
        # When the GPU is full, Windows spills to host memory; a Linux driver refuses instead.
        self.spill: Optional[int] = None
        if self._cuda and under_wsl():
            self.spill = 0

    def enter(self, phase: str) -> None:
        """Begin a phase: `train`, `eval` or one that is not told. The highest peaks of the one before are kept."""
        self._host[self._phase] = max(self._host.get(self._phase, 0), peak_rss() or 0)
        self._tells_phases = reset_peak_rss()
        if self._cuda:
            before = self._peaks.get(self._phase, CudaPeak())
            self._peaks[self._phase] = CudaPeak(
                allocated=max(torch.cuda.max_memory_allocated(self._device), before.allocated or 0),
                reserved=max(torch.cuda.max_memory_reserved(self._device), before.reserved or 0),
            )
            torch.cuda.reset_peak_memory_stats(self._device)
        self._phase = phase

    def sample(self, iteration: int, explained: int) -> Dict[str, float]:
        """Current memory in GiB: resident on a CPU; on CUDA allocated and reserved, and under WSL2 what has spilled.

        `explained`: bytes of the model, its moments and cached images.
        """
        if not self._cuda:
            # glibc keeps freed blocks of up to 32 MiB, more or fewer of them by how threads happened to meet (mallopt(3)), which
            # is no growth of anything: resident memory of one and the same training went up and down by 30 MiB. Other C
            # libraries have no such call.
            if sys.platform.startswith("linux"):
                with contextlib.suppress(OSError, AttributeError):  # musl
                    ctypes.CDLL(None).malloc_trim(0)
            held = resident()
            if held is None:
                return {}
            self.unexplained.append((iteration, held - explained))
            return {"rss_gb": held / GIB}
        allocated = torch.cuda.memory_allocated(self._device)
        reserved = torch.cuda.memory_reserved(self._device)
        self.unexplained.append((iteration, allocated - explained))
        free, total = torch.cuda.mem_get_info(self._device)
        self._used_share = max(self._used_share or 0.0, 1.0 - free / total)
        series = {"vram_allocated_gb": allocated / GIB, "vram_reserved_gb": reserved / GIB}
        if self.spill is not None:
            # At least so much is in host memory: what is reserved beyond all that the GPU has in use. A lower bound, for
            # other processes may use the GPU as well: 0 does not prove that nothing spilled.
            spilled = max(0, reserved - (total - free))
            self.spill = max(self.spill, spilled)
            series["vram_spill_gb"] = spilled / GIB
        return series

    def summary(self) -> Memory:
        """Return the peaks so far, of a run that trained and evaluated."""
        self.enter(self._phase)
        host, cuda = None, None
        if self._tells_phases:
            host = HostPeaks(self._start, self._host.get("train"), self._host.get("eval"))
        if self._cuda:
            peaks = self._peaks
            cuda = CudaMemory(peaks["train"], peaks["eval"], used_share=self._used_share, spill=self.spill)
        peak = max(self._host.values()) or None
        return Memory(peak, host=host, growth=growth(self.unexplained), cuda=cuda)


def growth(samples: List[Tuple[int, int]]) -> Optional[MemoryGrowth]:
    """Growth over the second half of a run, given (iteration, bytes): the median of all pairs' slopes (Theil 1950, Sen
    1968), which single jumps do not move, by 1,000 iterations; None where fewer than two moments were sampled there."""
    later = samples[len(samples) // 2 :]
    later = later[:: 1 + len(later) // MOST_MOMENTS]
    if len(later) < 2:
        return None
    pairs = itertools.combinations(later, 2)
    slopes = sorted((held - before) / (after - at) for (at, before), (after, held) in pairs)
    return MemoryGrowth(1000.0 * slopes[len(slopes) // 2], later[0][0], later[-1][0])


def under_wsl(version: Path = Path("/proc/version")) -> bool:
    """Tell whether this Linux runs in WSL, by its kernel version."""
    try:
        return "microsoft" in version.read_text(encoding="utf-8").lower()
    except OSError:
        return False


def resident() -> Optional[int]:
    """Resident memory of this process in bytes; None where there is no /proc."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def reset_peak_rss() -> bool:
    """Let `peak_rss` begin anew, and tell whether it does (Linux: proc_pid_clear_refs(5))."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def peak_rss() -> Optional[int]:
    """The highest resident memory of this process in bytes, on Linux since `reset_peak_rss`; None on Windows."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    # Not first: on Linux it is also the peak of the process that started this one (514 MiB instead of 14, measured).
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform != "darwin":  # macOS counts in bytes, others in KiB: getrusage(2) of both
        peak *= 1024
    return int(peak)
