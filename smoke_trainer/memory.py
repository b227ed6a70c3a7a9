"""Memory of a run: resident and CUDA memory with true peaks, creep above the settled baseline, spill under WSL2, a census."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import torch
from torch import Tensor

GIB = float(1 << 30)
SETTLED_AFTER = 20  # iterations: by then Adam's moments exist and the allocator has seen most sizes


class PeakMemory:
    """Resident memory of the process, and CUDA's peaks apart for training and evaluation."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._device = device
        self._peaks: Dict[str, Dict[str, int]] = {}
        self._settled: Optional[int] = None
        self.creep = 0
        # Windows lends a process ordinary memory when the card is full; a Linux driver refuses instead.
        self.spill: Optional[int] = 0 if self._cuda and under_wsl() else None

    def begin(self) -> None:
        """Start a phase with fresh peaks."""
        if self._cuda:
            torch.cuda.reset_peak_memory_stats(self._device)

    def end(self, phase: str) -> None:
        """Keep the phase's peaks if they are the highest so far."""
        if self._cuda:
            now = {
                "allocated": int(torch.cuda.max_memory_allocated(self._device)),
                "reserved": int(torch.cuda.max_memory_reserved(self._device)),
            }
            before = self._peaks.get(phase, {"allocated": 0, "reserved": 0})
            self._peaks[phase] = {key: max(now[key], before[key]) for key in now}

    def sample(self, iteration: int) -> Dict[str, float]:
        """Current CUDA memory in GiB, how far it is above the baseline that settled, and under WSL2 what has spilled."""
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
        """For result.json, in bytes; `cuda` is None on a CPU, its `spill` None where spill cannot happen or be seen."""
        cuda = dict(self._peaks, creep=self.creep, spill=self.spill) if self._cuda else None
        return {"rss": peak_rss(), "cuda": cuda}


def spilled_bytes(reserved: int, free: int, total: int) -> int:
    """The least that must lie in the host's shared memory: what the process holds beyond all that the card has in use.

    A lower bound, for other processes may use the card as well; so 0 does not prove that nothing spilled.
    """
    return max(0, reserved - (total - free))


def under_wsl(version: Path = Path("/proc/version")) -> bool:
    """Whether this Linux is a guest of Windows (its kernel says so)."""
    try:
        return "microsoft" in version.read_text(encoding="utf-8").lower()
    except OSError:
        return False


def peak_rss() -> Optional[int]:
    """The highest resident memory of this process in bytes, where the system tells it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def census(known: Mapping[int, str], top: int = 15) -> List[Dict[str, Any]]:
    """The largest live tensors that Python can see: what it is (`known`, by `id`), shape, type, device, bytes."""
    import gc

    seen: Dict[int, Dict[str, Any]] = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), Tensor):  # isinstance would ask lazy modules for their class
            size = thing.numel() * thing.element_size()
            seen[id(thing)] = {
                "what": known.get(id(thing)),
                "shape": list(thing.shape),
                "dtype": str(thing.dtype),
                "device": str(thing.device),
                "bytes": size,
            }
    return sorted(seen.values(), key=lambda row: -int(row["bytes"]))[:top]
