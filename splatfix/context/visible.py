"""How CUDA reads CUDA_VISIBLE_DEVICES: which GPUs a value leaves, what it drops and why, and which of it names a GPU."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from splatfix.facts import Gpu

NAME = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Reading:
    """What a value leaves of some GPUs."""

    places: tuple[int, ...] | None
    """Places in the GPUs, in the value's order; None where it names MIG instances that no card here has."""
    lost: str = ""
    """What CUDA drops of the value, and why, as a sentence; "" where it takes all of it."""
    valid: str = ""
    """The entries that do name a GPU, each once, as a value; "" where none does."""


def read_value(value: str, gpus: Sequence[Gpu]) -> Reading:
    """What CUDA makes of a value.

    The first entry decides how all are read: by UUID (a telling beginning is enough), by the UUID of a MIG instance, of which
    a program gets the first, or by number, of which what follows the digits is dropped. Everything from the first entry on
    that names no GPU is dropped; one that comes twice leaves none at all. Source: ``_parse_visible_devices`` and
    ``_device_count_nvml`` of torch/cuda/__init__.py, which a test holds this against; for MIG, NVIDIA's MIG User Guide.
    """
    if value.startswith("MIG-"):
        return _instance(value.split(",")[0], gpus)
    return _uuids(value, gpus) if value.startswith("GPU-") else _numbers(value, len(gpus))


def _instance(name: str, gpus: Sequence[Gpu]) -> Reading:
    # before driver 470: MIG-GPU-<UUID of the card>/<GPU instance>/<compute instance>
    card = name.removeprefix("MIG-").partition("/")[0]
    for index, gpu in enumerate(gpus):
        if name in gpu.mig_uuids or gpu.uuid == card:
            return Reading((index,), valid=name)
    return Reading(None, f"no MIG instance here is called {name}")


def _numbers(value: str, count: int) -> Reading:
    """By number. A repetition counts even behind a GPU that does not exist."""
    entries = [entry.strip() for entry in value.split(",")]
    numbers: list[int] = []
    good: dict[str, None] = {}
    odd: str | None = None
    for entry in entries:
        match = re.match(r"\+?[0-9]+", entry)
        if match is None:
            # CUDA stops here; what comes after it is only looked at for what was meant
            odd = entry if odd is None else odd
            continue
        number = int(match.group())
        if odd is None:
            numbers.append(number)
        if number < count:
            good[str(number)] = None
    visible = list(itertools.takewhile(lambda number: number < count, numbers))
    repeated = _repeated(numbers)
    lost = ""
    if repeated:
        lost = f"it names GPU {repeated} twice, and CUDA then shows none"
    elif len(visible) < len(numbers):
        last = f" (its last is {count - 1})" if count else ""
        lost = f"CUDA has no GPU {numbers[len(visible)]}{last}, and stops there"
    elif odd is not None:
        subject = f"{odd!r} names no GPU" if value.strip() else "it is empty"
        lost = f"{subject}, and CUDA stops there"
    return Reading(() if repeated else tuple(visible), lost, ",".join(good))


def _uuids(value: str, gpus: Sequence[Gpu]) -> Reading:
    entries = value.split(",")
    named = list(itertools.takewhile(lambda entry: entry.startswith("GPU-"), entries))
    fitting = []
    for entry in named:
        fitting.append([index for index, gpu in enumerate(gpus) if (gpu.uuid or "").startswith(entry)])
    # a beginning that two UUIDs share names none
    visible = [places[0] for places in itertools.takewhile(lambda places: len(places) == 1, fitting)]
    repeated = _repeated(named) or _repeated(visible)
    lost = ""
    if repeated:
        lost = "it names a GPU twice, and CUDA then shows none"
    elif len(visible) < len(named):
        several = len(fitting[len(visible)])
        how_many = f"{several} UUIDs begin" if several else "no GPU has a UUID that begins"
        lost = f"{how_many} with {named[len(visible)]}, and CUDA stops there"
    elif len(named) < len(entries):
        lost = f"{entries[len(named)]!r} is no UUID as the first entry is, and CUDA stops there"
    good: dict[int, str] = {}
    for entry, places in zip(named, fitting, strict=True):
        if len(places) == 1:
            good.setdefault(places[0], entry)
    return Reading(() if repeated else tuple(visible), lost, ",".join(good.values()))


def _repeated(entries: Sequence[str] | Sequence[int]) -> str:
    for index, entry in enumerate(entries):
        if entry in entries[:index]:
            return str(entry)
    return ""
