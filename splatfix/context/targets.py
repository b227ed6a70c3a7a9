"""Which GPU architectures to serve: those a person named, or those of the GPUs that CUDA_VISIBLE_DEVICES leaves here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from splatfix.context.model import Target
from splatfix.context.visible import NAME, Reading, read_value
from splatfix.core.errors import Exit, Problem
from splatfix.core.step import say
from splatfix.core.versions import release
from splatfix.facts import CudaDevice, Facts, Gpu, same_bus
from splatfix.knowledge import AUTO, Arch, Auto, drivers

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE of cuInit


def listed_gpus(facts: Facts) -> tuple[Gpu, ...]:
    """The NVIDIA GPUs that a program on this machine could use, hidden by a variable or not: those that the driver lists.

    A card that only the PCI bus shows is driven by something else (vfio, nouveau, nothing), or is the host's and was not
    given to this container; so are those that a kernel module alone lists inside a container.
    """
    machine = facts.machine
    others = {"bus"} if machine.container is None else {"bus", "kernel module"}
    return tuple(
        gpu for gpu in machine.gpus.value or () if gpu.vendor == "nvidia" and gpu.shown_by not in others
    )


def visible_value(facts: Facts) -> Reading | None:
    """What CUDA_VISIBLE_DEVICES leaves of the GPUs that the driver lists, or of CUDA's own where they are known; None where
    it is not set."""
    value, gpus = facts.machine.variables.get(NAME), listed_gpus(facts)
    if value is None:
        return None
    every = facts.machine.cuda_unfiltered.value
    return read_value(value, gpus if every is None else _as_cuda_lists(every, gpus))


def hides_all(facts: Facts) -> bool:
    """CUDA_VISIBLE_DEVICES alone leaves programs without a GPU: CUDA finds one as soon as it is not set, or the value leaves
    none of any number of GPUs. That CUDA finds no device while it is set does not show this."""
    machine, driver, reading = facts.machine, facts.machine.driver.value, visible_value(facts)
    if reading is None or machine.cuda.value or not listed_gpus(facts):
        return False
    if machine.cuda_unfiltered.known or reading.places == ():
        return True
    # an instance that the driver does not tell of, on facts from a splatfix that did not ask twice
    refused = driver is not None and driver.cuda_error == NO_DEVICE
    return reading.places is None and refused and not machine.cuda_unfiltered.error


def visible_gpus(facts: Facts) -> tuple[Gpu, ...]:
    """The NVIDIA GPUs that a program started here would see, as far as that is certain.

    CUDA's own list is the answer, in its order: CUDA has applied CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. Where CUDA did
    not give one, the variable is applied to the GPUs that the driver lists. A number in it counts in CUDA's order (the
    fastest first), which is then not known, unless CUDA_DEVICE_ORDER says PCI_BUS_ID: all of them count as visible. So they
    do where it names a MIG instance that no card here tells of, unless CUDA itself found no device.
    """
    gpus, variables = listed_gpus(facts), facts.machine.variables
    if facts.machine.cuda.value is not None:
        return _as_cuda_lists(facts.machine.cuda.value, gpus)
    value, reading = variables.get(NAME, ""), visible_value(facts)
    if hides_all(facts):
        return ()
    if reading is None or reading.places is None:
        return gpus
    if value.startswith(("GPU-", "MIG-")) or variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return tuple(gpus[place] for place in reading.places)
    return gpus


def _as_cuda_lists(devices: Iterable[CudaDevice], gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The GPU of each device; an old libcuda tells no bus number, and a MIG instance has its card's."""
    left = list(gpus)
    found = []
    for device in devices:
        same = [gpu for gpu in left if same_bus(gpu.bus_id, device.bus_id)]
        same = same or [gpu for gpu in left if device.uuid and device.uuid in (gpu.uuid, *gpu.mig_uuids)]
        same = same or [
            gpu for gpu in left if None in (gpu.bus_id, device.bus_id) and gpu.name == device.name
        ]
        if same:
            left.remove(same[0])
            found.append(same[0])
    return tuple(found)


def hidden_gpus(facts: Facts) -> frozenset[int]:
    """Index of each GPU of :func:`listed_gpus` that no program started here would see, beside some that it would see."""
    visible = {gpu.index for gpu in visible_gpus(facts)}
    return frozenset(gpu.index for gpu in listed_gpus(facts) if visible and gpu.index not in visible)


def left_aside(facts: Facts) -> dict[int, str]:
    """Why no program here gets a card, by the index of each NVIDIA card for which that is so."""
    machine, listed = facts.machine, listed_gpus(facts)
    hidden = {gpu.index for gpu in listed} if hides_all(facts) else hidden_gpus(facts)
    found = {}
    for gpu in listed:
        unusable = gpu.nvml_error is not None or (gpu.mig and not gpu.mig_devices)
        by_value = NAME in machine.variables and not unusable
        if gpu.index in hidden:
            found[gpu.index] = f"hidden by {NAME}" if by_value else "not listed by CUDA"
    for gpu in machine.gpus.value or ():
        if gpu.vendor != "nvidia" or gpu in listed:
            continue
        if machine.container:
            found[gpu.index] = "not given to this container"
        elif gpu.kernel_driver not in (None, "", "nvidia"):
            found[gpu.index] = f"bound to {gpu.kernel_driver}"
        elif machine.gpus.found_via == "libcuda" and NAME in machine.variables:
            found[gpu.index] = f"not listed by CUDA with {NAME}={machine.variables[NAME]}"
        else:
            found[gpu.index] = "not listed by the driver"
    return found


def gpu_of(facts: Facts, device: str) -> Gpu | None:
    """The GPU that ``cuda`` (the first) or ``cuda:1`` means to a program started here; None where that is not certain."""
    kind, _, number = device.partition(":")
    gpus, variables = visible_gpus(facts), facts.machine.variables
    ordered = (
        facts.machine.cuda.known
        or len({gpu.name for gpu in gpus}) == 1
        or variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    )
    if kind != "cuda" or not ordered or not (number or "0").isdecimal() or int(number or 0) >= len(gpus):
        return None
    return gpus[int(number or 0)]


def own_gpus(facts: Facts, device: str = "") -> dict[Arch, list[str]]:
    """The architectures of the NVIDIA GPUs that are used here with the GPUs' names, in the driver's order: of those that
    programs see, or of the one that ``device`` (``cuda:1``) means."""
    one = gpu_of(facts, device) if device else None
    every, gpus = facts.machine.cuda_unfiltered.value, listed_gpus(facts)
    without_value = gpus if every is None else _as_cuda_lists(every, gpus)
    used = {gpu.index for gpu in ([one] if one else visible_gpus(facts) or without_value or gpus)}
    found: dict[Arch, list[str]] = {}
    for gpu in gpus:
        arch = Arch.known(gpu.cc)
        if arch is not None and gpu.index in used:
            found.setdefault(arch, []).append(f"GPU {gpu.index}, {gpu.name}")
    return found


def find_targets(requested: Iterable[Arch | Auto], facts: Facts, device: str = "") -> tuple[Target, ...]:
    """The architectures asked for, each once, in the order given; nothing named means ``AUTO``: this machine's GPUs, or
    the one that ``device`` means."""
    own = own_gpus(facts, device)
    targets: dict[Arch, Target] = {}
    for item in tuple(requested) or (AUTO,):
        if isinstance(item, Arch):
            targets.setdefault(item, Target(item, f"{item.sm} (--target)", item.plain in own))
            continue
        for arch, names in own.items():
            targets.setdefault(arch, Target(arch, f"{arch.sm} ({'; '.join(names)})", here=True))
    return tuple(targets.values())


def driver_level(facts: Facts, target: Arch) -> str | None:
    """The CUDA level whose PTX this machine's driver compiles for a GPU, such as ``13.0``; None: not known, as for a GPU
    elsewhere.

    The driver says it itself; where neither NVML nor libcuda answered, and while it waits for its reboot, its version
    tells (knowledge/data/drivers.json).
    """
    driver, gpus = facts.machine.driver.value, facts.machine.gpus.value
    here = {Arch.known(gpu.cc) for gpu in listed_gpus(facts)}
    if driver is None or (gpus is not None and target.plain not in here):
        return None
    if driver.cuda and driver.library_version in (None, driver.version):
        return driver.cuda
    version = release(driver.library_version or driver.version)
    level = drivers.cuda_level_of_driver(version) if version else None
    return f"{level[0]}.{level[1]}" if level else driver.cuda


def no_gpu_problem(facts: Facts) -> Problem:
    """Why ``auto`` finds no GPU to serve here."""
    gpus, listed = facts.machine.gpus, listed_gpus(facts)
    others = [gpu for gpu in gpus.value or () if gpu not in listed]
    unused = next((gpu for gpu in others if gpu.vendor == "nvidia"), None)
    example = Arch.known(unused.cc) if unused else None
    if gpus.value is None and gpus.error:
        what = f"Which GPUs this machine has is not known ({gpus.error})."
    elif listed:
        what = f"The compute capability of {listed[0].name} could not be read."
    elif unused:
        what = f"{unused.name} is on the PCI bus, but no NVIDIA driver lists it for programs here."
    elif others:
        what = f"This machine has no NVIDIA GPU to build for, but {others[0].name}."
    else:
        what = "This machine shows no NVIDIA GPU to build for."
    return Problem(
        "no-gpu-to-target",
        what,
        meaning="Without a GPU to ask, splatfix cannot know which architecture the code must run on.",
        todo=(
            say(f"To build for it all the same, name it: --target {example.sm}")
            if example
            else say("For a GPU elsewhere name one: --target sm_120 (RTX 50), --target sm_89 (RTX 40)"),
        ),
        exit_code=Exit.UNDETERMINED,
    )
