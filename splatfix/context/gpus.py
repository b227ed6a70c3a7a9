"""Which NVIDIA GPUs a program here would see, which are left aside and why, and what they are."""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from splatfix.context.installed import Inventory
from splatfix.context.visible import NAME, Reading, read_value
from splatfix.core.versions import dotted, major_minor, release
from splatfix.facts import same_bus
from splatfix.knowledge import Arch, drivers
from splatfix.model import CudaDevice, Gpu

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE of cuInit
_NO_NVML = 12  # NVML_ERROR_LIBRARY_NOT_FOUND


class Gpus(Inventory, frozen=True, dict=True):
    """The layer of the context that knows the GPUs of the machine."""

    @cached_property
    def nvidia_gpus(self) -> tuple[Gpu, ...]:
        """The NVIDIA GPUs that a program on this machine could use, hidden by a variable or not: those that the driver lists.

        A card that only the PCI bus shows is driven by something else (vfio, nouveau, nothing), or is the host's and was not
        given to this container; so are those that a kernel module alone lists inside a container.
        """
        not_usable = {"bus"}
        if self.machine.container is not None:
            not_usable.add("kernel module")
        gpus = self.machine.gpus.value or ()
        return tuple(gpu for gpu in gpus if gpu.vendor == "nvidia" and gpu.shown_by not in not_usable)

    @property
    def all_lost(self) -> bool:
        """The driver counts GPUs and cannot reach any of them."""
        return bool(self.nvidia_gpus) and all(gpu.nvml_error is not None for gpu in self.nvidia_gpus)

    @cached_property
    def unused_cards(self) -> tuple[Gpu, ...]:
        """NVIDIA cards in sight that no program here can use: without NVIDIA's driver, or the host's."""
        gpus = self.machine.gpus.value or ()
        return tuple(gpu for gpu in gpus if gpu.vendor == "nvidia" and gpu not in self.nvidia_gpus)

    @property
    def has_working_gpu(self) -> bool | None:
        """An NVIDIA GPU that torch would see; None when that is not known."""
        driver, cuda = self.machine.driver, self.machine.cuda
        if self.machine.gpus.value is None:
            return None
        if not self.nvidia_gpus:
            return False
        if cuda.known or cuda.absent:
            return bool(cuda.value)
        if driver.absent:
            return False
        if driver.value is None:
            return None
        if driver.value.cuda_error is not None:
            return False
        # a Jetson has no NVML, but its libcuda answers
        return driver.value.nvml_error != _NO_NVML or driver.value.cuda is not None

    @cached_property
    def _without_variable(self) -> tuple[Gpu, ...]:
        """What CUDA lists where CUDA_VISIBLE_DEVICES is not set, in its order; the driver's list where it was not asked."""
        devices = self.machine.cuda_unfiltered.value
        if devices is None:
            return self.nvidia_gpus
        return _as_cuda_lists(devices, self.nvidia_gpus)

    @cached_property
    def visible_value(self) -> Reading | None:
        """What CUDA_VISIBLE_DEVICES leaves of the GPUs that the driver lists, or of CUDA's own where they are known; None
        where it is not set."""
        if NAME not in self.variables:
            return None
        return read_value(self.variables[NAME], self._without_variable)

    @cached_property
    def hides_all(self) -> bool:
        """CUDA_VISIBLE_DEVICES alone leaves programs without a GPU: CUDA finds one as soon as it is not set, or the value
        leaves none of any number of GPUs. That CUDA finds no device while it is set does not show this."""
        machine, reading = self.machine, self.visible_value
        if reading is None or machine.cuda.value or not self.nvidia_gpus:
            return False
        return machine.cuda_unfiltered.known or reading.places == ()

    @cached_property
    def visible_gpus(self) -> tuple[Gpu, ...]:
        """The NVIDIA GPUs that a program started here would see, as far as that is certain.

        CUDA's own list is the answer, in its order: CUDA has applied CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. Where CUDA
        did not give one, the variable is applied to the GPUs that the driver lists. A number in it counts in CUDA's order
        (the fastest first), which is then not known, unless CUDA_DEVICE_ORDER says PCI_BUS_ID: all of them count as visible.
        So they do where it names a MIG instance that no card here tells of, unless CUDA itself found no device.
        """
        gpus, reading = self.nvidia_gpus, self.visible_value
        if self.machine.cuda.value is not None:
            return _as_cuda_lists(self.machine.cuda.value, gpus)
        if self.hides_all:
            return ()
        if reading is None or reading.places is None:
            return gpus
        by_uuid = self.variables.get(NAME, "").startswith(("GPU-", "MIG-"))
        if by_uuid or self._ordered_by_bus:
            return tuple(gpus[index] for index in reading.places)
        return gpus

    @property
    def _ordered_by_bus(self) -> bool:
        return self.variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"

    @cached_property
    def hidden_gpus(self) -> frozenset[int]:
        """Index of each NVIDIA GPU that no program started here would see, beside some that it would see."""
        visible = {gpu.index for gpu in self.visible_gpus}
        return frozenset(gpu.index for gpu in self.nvidia_gpus if visible and gpu.index not in visible)

    @cached_property
    def left_aside(self) -> dict[int, str]:
        """Why no program here gets a card, by the index of each NVIDIA card for which that is so."""
        reasons: dict[int, str] = {}
        for gpu in self.nvidia_gpus:
            if not self.hides_all and gpu.index not in self.hidden_gpus:
                continue
            reasons[gpu.index] = "not listed by CUDA"
            # a lost card and one in MIG mode without instances no variable would show
            unusable = gpu.nvml_error is not None or (gpu.mig and not gpu.mig_devices)
            if NAME in self.variables and not unusable:
                reasons[gpu.index] = f"hidden by {NAME}"
        for gpu in self.unused_cards:
            if self.machine.container:
                reasons[gpu.index] = "not given to this container"
            elif gpu.kernel_driver not in (None, "", "nvidia"):
                reasons[gpu.index] = f"bound to {gpu.kernel_driver}"
            elif self.machine.gpus.found_via == "libcuda" and NAME in self.variables:
                reasons[gpu.index] = f"not listed by CUDA with {NAME}={self.variables[NAME]}"
            else:
                reasons[gpu.index] = "not listed by the driver"
        return reasons

    def gpu_of(self, device: str) -> Gpu | None:
        """Return the GPU that ``cuda`` (the first) or ``cuda:1`` means to a program started here; None where that is open."""
        # torch's own syntax of a device; "cuda" alone is its first
        match = re.fullmatch(r"cuda(?::(\d*))?", device, re.ASCII)
        if match is None:
            return None
        index = int(match[1] or 0)
        if index >= len(self.visible_gpus):
            return None
        # of equal cards the order does not matter
        equal = len({gpu.name for gpu in self.visible_gpus}) == 1
        if not (self.machine.cuda.known or equal or self._ordered_by_bus):
            return None
        return self.visible_gpus[index]

    def own_archs(self, device: str = "") -> dict[Arch, list[str]]:
        """Return the architectures of the NVIDIA GPUs that are used here with the GPUs' names, in the driver's order: of those
        that programs see, or of the one that ``device`` (``cuda:1``) means."""
        chosen = self.gpu_of(device)
        gpus = self.visible_gpus or self._without_variable or self.nvidia_gpus
        if chosen is not None:
            gpus = (chosen,)
        used = {gpu.index for gpu in gpus}
        archs: dict[Arch, list[str]] = {}
        for gpu in self.nvidia_gpus:
            arch = Arch.known(gpu.cc)
            if arch is not None and gpu.index in used:
                archs.setdefault(arch, []).append(f"GPU {gpu.index}, {gpu.name}")
        return archs

    @property
    def largest_card(self) -> tuple[str, int] | None:
        """Name and bytes of the largest NVIDIA GPU that one program can have, whole or a MIG instance (MIG 3g.40gb) of it; None
        where none is known."""
        cards: list[tuple[str, int]] = []
        for gpu in self.machine.gpus.value or ():
            # a card that CUDA does not list for a reason of its own counts: only a variable takes it away
            if gpu.vendor != "nvidia" or gpu.index in self.hidden_gpus:
                continue
            if gpu.mig:
                sizes = re.findall(r"\b\d+g\.(\d+)gb", " ".join(gpu.mig_devices))
                cards += [(f"{gpu.name}, MIG {size}gb", int(size) * 10**9) for size in sizes]
            elif gpu.memory_total:
                cards.append((gpu.name, gpu.memory_total))
        return max(cards, key=lambda card: card[1], default=None)

    def driver_level(self, target: Arch) -> str | None:
        """Return the CUDA level whose PTX this machine's driver compiles for a GPU, such as ``13.0``; None: not known, as for a
        GPU elsewhere.

        The driver says it itself; where neither NVML nor libcuda answered, and while it waits for its reboot, its version
        tells (knowledge/data/drivers.json).
        """
        driver = self.machine.driver.value
        here = {Arch.known(gpu.cc) for gpu in self.nvidia_gpus}
        if driver is None or (self.machine.gpus.value is not None and target.plain not in here):
            return None
        # libraries and kernel module of two versions: an upgrade that waits for its reboot
        if driver.cuda and driver.library_version in (None, driver.version):
            return driver.cuda
        version = release(driver.library_version or driver.version)
        if not version:
            return driver.cuda
        level = drivers.cuda_level_of_driver(version)
        return dotted(level or ()) or driver.cuda

    def compiles_ptx(self, toolkit_version: str | None, arch: Arch) -> bool | None:
        """Tell whether this machine's driver compiles the PTX that nvcc of this version writes, for a GPU; None: not known."""
        isa = drivers.ptx_isa_of_cuda(major_minor(toolkit_version) or (0, 0))
        if isa is None:
            return None
        return drivers.ptx_jit_ok(isa, major_minor(self.driver_level(arch)))


def _as_cuda_lists(devices: Iterable[CudaDevice], gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPU of each device, each once: by bus, else by UUID (a MIG instance has its card's), else by name."""
    remaining = list(gpus)
    matched = []
    for device in devices:
        by_bus = [gpu for gpu in remaining if same_bus(gpu.bus_id, device.bus_id)]
        by_uuid = [gpu for gpu in remaining if device.uuid and device.uuid in (gpu.uuid, *gpu.mig_uuids)]
        # an old libcuda tells no bus number
        without_bus = [gpu for gpu in remaining if None in (gpu.bus_id, device.bus_id)]
        by_name = [gpu for gpu in without_bus if gpu.name == device.name]
        for gpu in (*by_bus, *by_uuid, *by_name)[:1]:
            remaining.remove(gpu)
            matched.append(gpu)
    return tuple(matched)
