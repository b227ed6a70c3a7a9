"""How CUDA reads CUDA_VISIBLE_DEVICES: which GPUs a value leaves, what it drops and why, and which of it names a GPU."""

import itertools
import re
from collections.abc import Sequence

from msgspec import Struct

from splatfix.model import Gpu

NAME = "CUDA_VISIBLE_DEVICES"
_TWICE = "it names a GPU twice, and CUDA then shows none"


class Reading(Struct, frozen=True):
    """What a value leaves of some GPUs."""

    places: tuple[int, ...] | None
    """Places in the GPUs, in the value's order; None where it names MIG instances that no card here has."""
    lost: str = ""
    """What CUDA drops of the value, and why, as a sentence; "" where it takes all of it."""
    valid: str = ""
    """The entries that do name a GPU, each once, as a value; "" where none does."""


def read_value(value: str, gpus: Sequence[Gpu]) -> Reading:
    """Say what CUDA makes of a value.

    The first entry decides how all are read: by UUID (a telling beginning is enough), by the UUID of a MIG instance, of which
    a program gets the first, or by number, of which what follows the digits is dropped. Everything from the first entry on
    that names no GPU is dropped; one that comes twice leaves none at all. Source: ``_parse_visible_devices`` and
    ``_device_count_nvml`` of torch/cuda/__init__.py, which a test holds this against; for MIG, NVIDIA's MIG User Guide.
    """
    if value.startswith("MIG-"):
        name = value.split(",")[0]
        # before driver 470: MIG-GPU-<UUID of the card>/<GPU instance>/<compute instance>
        card = name.removeprefix("MIG-").partition("/")[0]
        for index, gpu in enumerate(gpus):
            if name in gpu.mig_uuids or gpu.uuid == card:
                return Reading((index,), valid=name)
        return Reading(None, f"no MIG instance here is called {name}")
    if value.startswith("GPU-"):
        return _uuids(value, gpus)
    return _numbers(value, len(gpus))


def _numbers(value: str, count: int) -> Reading:
    """Read it by number. A repetition counts even behind a GPU that does not exist."""
    numbers: list[int] = []
    good: dict[str, None] = {}
    odd: list[str] = []
    for entry in map(str.strip, value.split(",")):
        match = re.match(r"\+?[0-9]+", entry)
        if match is None:
            odd.append(entry)
            continue
        number = int(match.group())
        # CUDA stops at the first that is no number; what comes after it is only looked at for what was meant
        if not odd:
            numbers.append(number)
        if number < count:
            good[str(number)] = None
    valid = ",".join(good)
    if len(set(numbers)) < len(numbers):
        return Reading((), _TWICE, valid)
    visible, lost = tuple(itertools.takewhile(lambda number: number < count, numbers)), ""
    if len(visible) < len(numbers):
        lost = f"CUDA has no GPU {numbers[len(visible)]} (its last is {count - 1}), and stops there"
    elif not value.strip():
        lost = "it is empty, and CUDA stops there"
    elif odd:
        lost = f"{odd[0]!r} names no GPU, and CUDA stops there"
    return Reading(visible, lost, valid)


def _uuids(value: str, gpus: Sequence[Gpu]) -> Reading:
    entries = value.split(",")
    named = list(itertools.takewhile(lambda entry: entry.startswith("GPU-"), entries))
    fitting = []
    for entry in named:
        fitting.append([index for index, gpu in enumerate(gpus) if (gpu.uuid or "").startswith(entry)])
    good: dict[int, str] = {}
    for entry, places in zip(named, fitting, strict=True):
        if len(places) == 1:
            good.setdefault(places[0], entry)
    valid = ",".join(good.values())
    # a beginning that two UUIDs share names none
    visible = [places[0] for places in itertools.takewhile(lambda places: len(places) == 1, fitting)]
    if len(set(named)) < len(named) or len(set(visible)) < len(visible):
        return Reading((), _TWICE, valid)
    lost = ""
    if len(visible) < len(named):
        number = len(fitting[len(visible)])
        lost = f"{number} UUIDs begin with {named[len(visible)]}, and CUDA stops there"
    elif len(named) < len(entries):
        lost = f"{entries[len(named)]!r} is no UUID as the first entry is, and CUDA stops there"
    return Reading(tuple(visible), lost, valid)
