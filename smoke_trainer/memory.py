"""Memory of a run: peaks of resident and CUDA memory, growth, spill to host memory under WSL2, the largest tensors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import torch
from torch import Tensor

GIB = float(1 << 30)
SETTLED_AFTER = 20  # iterations: by then Adam's moments exist and the allocator's cache is warm


class PeakMemory:
    """Peaks of resident memory, and of CUDA memory apart for training and evaluation."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._device = device
        self._peaks: Dict[str, Dict[str, int]] = {}
        self._settled: Optional[int] = None
        self.creep = 0
        # When the GPU is full, Windows spills to host memory; a Linux driver refuses instead.
        self.spill: Optional[int] = 0 if self._cuda and under_wsl() else None

    def begin(self) -> None:
        """Start a phase: reset CUDA's peaks."""
        if self._cuda:
            torch.cuda.reset_peak_memory_stats(self._device)

    def end(self, phase: str) -> None:
        """End a phase: keep its peaks if they are the highest so far."""
        if self._cuda:
            now = {
                "allocated": int(torch.cuda.max_memory_allocated(self._device)),
                "reserved": int(torch.cuda.max_memory_reserved(self._device)),
            }
            before = self._peaks.get(phase, {"allocated": 0, "reserved": 0})
            self._peaks[phase] = {key: max(now[key], before[key]) for key in now}

    def sample(self, iteration: int) -> Dict[str, float]:
        """Current CUDA memory in GiB, its growth since SETTLED_AFTER iterations, and under WSL2 what has spilled."""
        if not self._cuda:
            return {}
        allocated = int(torch.cuda.memory_allocated(self._device))
        reserved = int(torch.cuda.memory_reserved(self._device))
        if self._settled is None and iteration >= SETTLED_AFTER:
            self._settled = allocated
        creep = max(0, allocated - (self._settled if self._settled is not None else allocated))
        self.creep = max(self.creep, creep)
        series = {
            "vram_allocated_gb": allocated / GIB,
            "vram_reserved_gb": reserved / GIB,
            "vram_creep_gb": creep / GIB,
        }
        if self.spill is not None:
            spilled = spilled_bytes(reserved, *torch.cuda.mem_get_info(self._device))
            self.spill = max(self.spill, spilled)
            series["vram_spill_gb"] = spilled / GIB
        return series

    def as_json(self) -> Dict[str, Any]:
        """For result.json, in bytes; `cuda` is None on a CPU, its `spill` None where it cannot be measured."""
        cuda = dict(self._peaks, creep=self.creep, spill=self.spill) if self._cuda else None
        return {"rss": peak_rss(), "cuda": cuda}


def spilled_bytes(reserved: int, free: int, total: int) -> int:
    """Bytes that are at least in host memory: what the process has reserved beyond all that the GPU has in use.

    A lower bound, because other processes may use the GPU as well: 0 does not prove that nothing spilled.
    """
    return max(0, reserved - (total - free))


def under_wsl(version: Path = Path("/proc/version")) -> bool:
    """Whether this Linux runs in WSL, by its kernel version."""
    try:
        return "microsoft" in version.read_text(encoding="utf-8").lower()
    except OSError:
        return False


def peak_rss() -> Optional[int]:
    """The highest resident memory of this process in bytes; None on Windows."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def largest_tensors(names: Mapping[int, str], top: int = 15) -> List[Dict[str, Any]]:
    """The largest live tensors: name (`names`, by `id`), shape, type, device, bytes."""
    import gc

    seen: Dict[int, Dict[str, Any]] = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), Tensor):  # isinstance would ask lazy modules for their class
            size = thing.numel() * thing.element_size()
            seen[id(thing)] = {
                "name": names.get(id(thing)),
                "shape": list(thing.shape),
                "dtype": str(thing.dtype),
                "device": str(thing.device),
                "bytes": size,
            }
    return sorted(seen.values(), key=lambda row: -int(row["bytes"]))[:top]
