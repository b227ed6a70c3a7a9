"""GPUs and driver by every road: NVML, libcuda, nvidia-smi, /proc, the device tree, the PCI bus, system_profiler."""

import json

import pytest

from splatfix.facts.machine import adapters as pci
from splatfix.facts.machine import gpu as gpus
from tests.facts.conftest import MachineOf
from tests.tables import data

TABLE = data(__file__)

CUDA = ("py", "{splatfix}/facts/machine/probe_cuda.py", "libcuda.so.1")


def bus(slot: str, vendor: str, device: str, kind: str = "0x030000") -> dict[str, str]:
    said = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": kind}
    return {f"/sys/bus/pci/devices/{slot}/{name}": f"{text}\n" for name, text in said.items()}


def test_a_size_that_nvml_does_not_know_is_cudas(machine_of: MachineOf) -> None:
    """A GB10 has the machine's memory. Of a card that is cut into instances CUDA lists one, under a UUID of its own."""
    whole = {"name": "NVIDIA GB10", "memory_total": None, "uuid": "GPU-1"}
    given = [whole, {**whole, "uuid": "GPU-2", "memory_total": 5}, {**whole, "uuid": "GPU-3"}, {"uuid": None}]
    of_cuda = [("GPU-1", 7), ("GPU-2", 6), ("MIG-3", 8), (None, 9)]
    answer = {"init": 0, "cuda": 13000, "gpus": [{"uuid": u, "memory_total": size} for u, size in of_cuda]}
    machine = machine_of(nvml={"gpus": given}, commands={CUDA: json.dumps(answer)}, exists=["/dev/nvidiactl"])
    assert [gpu.memory_total for gpu in gpus.probe(machine).gpus.value or ()] == [7, 5, None, None]


def test_the_kernel_modules_own_files(machine_of: MachineOf) -> None:
    name = "NVIDIA GeForce RTX 3090"
    text = f"Model: \t\t {name}\nIRQ:   \t\t 92\nGPU UUID: \t GPU-00000000-0000-0000-0000-000000000001\n"
    files = {"/proc/driver/nvidia/gpus/0000:01:00.0/information": text}
    files |= {"/sys/module/nvidia/version": "535.183.01\n", **bus("0000:01:00.0", "10de", "2204")}
    seen = gpus.probe(machine_of(files=files))
    assert [(g.name, g.cc, g.pci_id) for g in seen.gpus.value or ()] == [(name, "8.6", "10de:2204")]
    # /sys does not tell openness
    assert (seen.driver.value.version, seen.driver.value.open_module) == ("535.183.01", None)


@pytest.mark.parametrize(("line", "version", "is_open"), TABLE["lines-of-proc-driver-nvidia-version"])
def test_version_of_proc_driver(machine_of: MachineOf, line: str, version: str, is_open: bool) -> None:
    files = {"/proc/driver/nvidia/version": f"NVRM version: {line}\nGCC version: x\n"}
    driver = gpus.probe(machine_of(files=files)).driver.value
    assert (driver.version, driver.open_module) == (version, is_open)


@pytest.mark.parametrize(("vendor", "device", "name", "cc"), TABLE["cards-by-their-pci-id"])
def test_pci_ids(machine_of: MachineOf, vendor: str, device: str, name: str, cc: str | None) -> None:
    """Audio functions and bridges are no cards."""
    files = {**bus("0000:01:00.0", vendor, device), **bus("0000:01:00.1", "10de", "22e9", "0x040300")}
    (card,) = pci.cards(machine_of(files=files))
    assert (card.name, card.cc) == (name, cc)


def test_programs_that_ask_eight_sleeping_gpus_have_time(machine_of: MachineOf) -> None:
    """Each GPU is woken in turn where no persistence daemon keeps them awake."""
    files = {f"/proc/driver/nvidia/gpus/0000:0{number}:00.0/power": "" for number in range(8)}
    assert gpus.for_all_gpus(machine_of(files=files), 20.0) == 48.0
    assert gpus.for_all_gpus(machine_of(), 8.0) == 8.0
