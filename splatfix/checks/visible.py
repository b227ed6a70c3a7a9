"""Which GPUs CUDA_VISIBLE_DEVICES leaves to a program, by the rules that the CUDA runtime and torch read it by."""

from __future__ import annotations

import re
from collections.abc import Sequence

from splatfix.facts import Facts, Gpu

NAME = "CUDA_VISIBLE_DEVICES"


def visible_places(value: str, gpus: Sequence[Gpu]) -> tuple[int, ...] | None:
    """Places in ``gpus`` that the value leaves, in its order; None where it names MIG instances, which have no place.

    The first entry decides how all are read: by UUID (a telling beginning is enough) or by number, of which what follows
    the digits is dropped. Everything from the first entry on that names no GPU is dropped; one that comes twice leaves
    none at all. Source: ``_parse_visible_devices`` and ``_device_count_nvml`` of torch/cuda/__init__.py, which a test holds
    this against.
    """
    if value.startswith("MIG-"):
        return None
    named = _uuids(value, gpus) if value.startswith("GPU-") else _numbers(value)
    if len(set(named)) < len(named):
        return ()
    beyond = next((count for count, place in enumerate(named) if not 0 <= place < len(gpus)), len(named))
    return tuple(named[:beyond])


def _numbers(value: str) -> list[int]:
    """All numbers up to the first entry that is none: a repetition counts even behind a GPU that does not exist."""
    found = []
    for item in value.split(","):
        digits = re.match(r"\+?[0-9]+", item.strip())
        if digits is None:
            break
        found.append(int(digits.group()))
    return found


def _uuids(value: str, gpus: Sequence[Gpu]) -> list[int]:
    """The places of all GPUs up to the first entry that names none, or more than one."""
    wanted = value.split(",")
    wanted = wanted[
        : next((count for count, item in enumerate(wanted) if not item.startswith("GPU-")), len(wanted))
    ]
    if len(set(wanted)) < len(wanted):
        return []
    found = []
    for item in wanted:
        fitting = [place for place, gpu in enumerate(gpus) if (gpu.uuid or "").startswith(item)]
        if len(fitting) != 1:
            break
        found += fitting
    return found


def hidden_gpus(facts: Facts) -> frozenset[int]:
    """Index of each NVIDIA GPU that no program started here would see; empty where that is not certain.

    A number counts in CUDA's own order (the fastest first), which the facts do not hold, unless CUDA_DEVICE_ORDER says
    PCI_BUS_ID or the GPUs are all of one kind.
    """
    variables = facts.machine.variables
    gpus = [gpu for gpu in facts.machine.gpus.value or () if gpu.vendor == "nvidia"]
    value = variables.get(NAME)
    places = visible_places(value, gpus) if value is not None else None
    if value is None or not places:
        return frozenset()  # none at all is an illness of its own, and hides nothing that one could choose
    certain = value.startswith("GPU-") or variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not certain:
        return frozenset()
    return frozenset(gpu.index for place, gpu in enumerate(gpus) if place not in places)
