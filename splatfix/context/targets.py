"""Which GPU architectures to serve: those a person named, or those of the GPUs that CUDA_VISIBLE_DEVICES leaves here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from splatfix.context.model import Target
from splatfix.core.errors import Exit, Problem, usage_error
from splatfix.core.step import say
from splatfix.core.versions import release
from splatfix.facts import Facts, Gpu
from splatfix.knowledge import Arch, drivers, parse_target, split_targets

AUTO = "auto"
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
        return frozenset()  # none is left: no-gpu-visible reports it, and there is nothing to choose
    certain = value.startswith("GPU-") or variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not certain:
        return frozenset()
    return frozenset(gpu.index for place, gpu in enumerate(gpus) if place not in places)


def visible_gpus(facts: Facts) -> tuple[Gpu, ...]:
    """The NVIDIA GPUs that a program started here would see."""
    gpus = [gpu for gpu in facts.machine.gpus.value or () if gpu.vendor == "nvidia"]
    value = facts.machine.variables.get(NAME)
    if value is not None and visible_places(value, gpus) == ():
        return ()
    hidden = hidden_gpus(facts)
    return tuple(gpu for gpu in gpus if gpu.index not in hidden)


def own_gpus(facts: Facts) -> dict[Arch, list[str]]:
    """The architectures of this machine's NVIDIA GPUs with the GPUs' names, in the driver's order.

    A GPU that CUDA_VISIBLE_DEVICES surely hides runs nothing of what is started here, and is left out.
    """
    found: dict[Arch, list[str]] = {}
    hidden = hidden_gpus(facts)
    for gpu in facts.machine.gpus.value or ():
        arch = Arch.known(gpu.cc) if gpu.vendor == "nvidia" else None
        if arch is not None and gpu.index not in hidden:
            found.setdefault(arch, []).append(f"GPU {gpu.index}, {gpu.name}")
    return found


def find_targets(requested: Iterable[str], facts: Facts) -> tuple[Target, ...]:
    """The architectures asked for, each once, in the order given; nothing named means ``auto``: this machine's GPUs.

    Raises:
        SplatfixError: ``unknown-arch`` (exit 2).
    """
    here = own_gpus(facts)
    found: dict[Arch, Target] = {}
    for text in each_target(requested) or [AUTO]:
        if text.lower() == AUTO:
            for arch, names in here.items():
                found.setdefault(arch, Target(arch, f"{arch.sm} ({'; '.join(names)})", here=True))
        else:
            arch = parse(text)
            found.setdefault(arch, Target(arch, f"{arch.sm} (--target)", arch.plain in here))
    return tuple(found.values())


def each_target(requested: Iterable[str]) -> list[str]:
    """``("sm_90,auto",)`` -> ``["sm_90", "auto"]``; raises ``unknown-arch`` (exit 2) for what is no architecture."""
    found = [part for text in requested for part in split_targets(text)]
    for text in found:
        if text.lower() != AUTO:
            parse(text)
    return found


def parse(text: str) -> Arch:
    """The architecture of a name; raises ``unknown-arch`` (exit 2)."""
    try:
        return parse_target(text)
    except ValueError as error:
        raise usage_error("unknown-arch", str(error)) from error


def driver_level(facts: Facts, target: Arch) -> str | None:
    """The CUDA level whose PTX this machine's driver compiles for a GPU, such as ``13.0``; None: not known, as for a GPU
    elsewhere.

    The driver says it itself; where neither NVML nor libcuda answered, and while it waits for its reboot, its version
    tells (knowledge/data/drivers.json).
    """
    driver, gpus = facts.machine.driver.value, facts.machine.gpus.value
    here = {Arch.known(gpu.cc) for gpu in gpus or () if gpu.vendor == "nvidia"}
    if driver is None or (gpus is not None and target.plain not in here):
        return None
    if driver.cuda and driver.library_version in (None, driver.version):
        return driver.cuda
    version = release(driver.library_version or driver.version)
    level = drivers.cuda_level_of_driver(version) if version else None
    return f"{level[0]}.{level[1]}" if level else driver.cuda


def no_gpu_problem(facts: Facts) -> Problem:
    """Why ``auto`` finds no GPU to serve here."""
    gpus = facts.machine.gpus
    others = [gpu for gpu in gpus.value or () if gpu.vendor != "nvidia"]
    if gpus.value is None and gpus.error:
        what = f"Which GPUs this machine has is not known ({gpus.error})."
    elif others and len(others) == len(gpus.value or ()):
        what = f"This machine has no NVIDIA GPU to build for, but {others[0].name}."
    elif gpus.value:
        what = f"The compute capability of {gpus.value[0].name} could not be read."
    else:
        what = "This machine shows no NVIDIA GPU to build for."
    return Problem(
        "no-gpu-to-target",
        what,
        meaning="Without a GPU to ask, splatfix cannot know which architecture the code must run on.",
        todo=(say("Name it: --target sm_120 for an RTX 50 card, --target sm_89 for an RTX 40 card."),),
        exit_code=Exit.UNDETERMINED,
    )
