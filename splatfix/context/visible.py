"""How CUDA reads CUDA_VISIBLE_DEVICES: which GPUs a value leaves, what it drops and why, and which of it names a GPU."""

from __future__ import annotations

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
    meant: str = ""
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
    for place, gpu in enumerate(gpus):
        if name in gpu.mig_uuids or gpu.uuid == card:
            return Reading((place,), meant=name)
    return Reading(None, f"no MIG instance here is called {name}")


def _numbers(value: str, count: int) -> Reading:
    """By number. A repetition counts even behind a GPU that does not exist."""
    entries = [entry.strip() for entry in value.split(",")]
    digits = [re.match(r"\+?[0-9]+", entry) for entry in entries]
    end = next((place for place, found in enumerate(digits) if found is None), len(entries))
    named = [int(found.group()) for found in digits[:end] if found]
    beyond = next((place for place, number in enumerate(named) if number >= count), len(named))
    lost = ""
    if repeated := _repeated(named):
        lost = f"it names GPU {repeated} twice, and CUDA then shows none"
    elif beyond < len(named):
        last = f" (its last is {count - 1})" if count else ""
        lost = f"CUDA has no GPU {named[beyond]}{last}, and stops there"
    elif end < len(entries):
        odd = entries[end]
        names = "it is empty" if value.strip() == "" else f"{odd!r} names no GPU"
        lost = f"{names}, and CUDA stops there"
    good = [str(int(found.group())) for found in digits if found and int(found.group()) < count]
    return Reading(() if repeated else tuple(named[:beyond]), lost, ",".join(dict.fromkeys(good)))


def _uuids(value: str, gpus: Sequence[Gpu]) -> Reading:
    entries = value.split(",")
    end = next((place for place, item in enumerate(entries) if not item.startswith("GPU-")), len(entries))
    fitting = [
        [place for place, gpu in enumerate(gpus) if (gpu.uuid or "").startswith(item)]
        for item in entries[:end]
    ]
    beyond = next((place for place, found in enumerate(fitting) if len(found) != 1), end)
    named = [found[0] for found in fitting[:beyond]]
    repeated = _repeated(entries[:end]) or _repeated(named)
    lost = ""
    if repeated:
        lost = "it names a GPU twice, and CUDA then shows none"
    elif beyond < end:
        how_many = (
            f"{len(fitting[beyond])} UUIDs begin" if fitting[beyond] else "no GPU has a UUID that begins"
        )
        lost = f"{how_many} with {entries[beyond]}, and CUDA stops there"
    elif end < len(entries):
        lost = f"{entries[end]!r} is no UUID as the first entry is, and CUDA stops there"
    good: dict[int, str] = {}
    for item, found in zip(entries, fitting, strict=False):
        if len(found) == 1:
            good.setdefault(found[0], item)
    return Reading(() if repeated else tuple(named), lost, ",".join(good.values()))


def _repeated(named: Sequence[str] | Sequence[int]) -> str:
    return next((str(item) for place, item in enumerate(named) if item in named[:place]), "")
