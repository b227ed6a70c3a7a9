"""Which GPU trained, as a certificate records it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from splatfix.certify.model import SceneRun
from splatfix.context import make_context
from splatfix.facts import Facts, Gpu

_DIGITS = 16


def gpu_record(facts: Facts, device: str, scenes: Sequence[SceneRun]) -> dict[str, str]:
    """Name, hashed UUID, highest clocks and power limit of the GPU that was used, the driver, and the machine's other GPUs.

    The name is torch's own, where a training told it. The rest is NVML's about the GPU that ``device`` means, and left out
    where that is not certain: between different GPUs, when CUDA's own order is not known.
    """
    every = facts.machine.gpus.value or ()
    driver = facts.machine.driver.value
    used = make_context(facts).gpu_of(device) if device != "cpu" else None
    told = next((name for run in scenes if (name := run.result.get("machine", {}).get("gpu"))), None)
    found = {"GPU": "none used" if device == "cpu" and every else "none"}
    if device != "cpu":
        found["GPU"] = f"{told or (used.name if used else 'unknown')} ({device})"
    if used is not None:
        found |= _details(used)
    others = ", ".join(gpu.name for gpu in every if gpu != used)
    if others:
        found["other GPUs" if device != "cpu" else "GPUs in the machine"] = others
    found["driver"] = (driver.version or "unknown") if driver else "none"
    return found


def _details(gpu: Gpu) -> dict[str, str]:
    found = {}
    if gpu.uuid:  # enough to tell two cards apart, and no serial number in a public report
        found["GPU id"] = f"sha256:{hashlib.sha256(gpu.uuid.encode()).hexdigest()[:_DIGITS]}"
    if gpu.max_clocks:
        found["GPU clocks"] = f"at most {gpu.max_clocks[0]} MHz, memory {gpu.max_clocks[1]} MHz"
    if gpu.power_limit:
        of = f" of {gpu.default_power_limit / 1000:g} W" if gpu.default_power_limit else ""
        found["GPU power limit"] = f"{gpu.power_limit / 1000:g} W{of}"
    return found
