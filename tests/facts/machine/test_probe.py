"""The machine itself: libc, container, resources under control groups, adapters; probes side by side, under a limit."""

import threading
import time

import pytest

from splatfix.facts.machine import adapters, resources
from splatfix.facts.machine import probe as machine
from splatfix.facts.system.parallel import parallel
from tests.facts.conftest import MachineOf
from tests.tables import data

TABLE = data(__file__)


@pytest.mark.parametrize(("files", "found"), TABLE["resources"])
def test_resources(machine_of: MachineOf, files: dict[str, str], found: tuple[int, ...]) -> None:
    """Under control groups of both versions, of which those above limit too."""
    given = resources.probe(machine_of(files={**TABLE["host"], **files}))
    assert (given.cores, given.memory_total, given.memory_available, given.swap_total) == found


def test_musl_is_told_from_glibc(machine_of: MachineOf) -> None:
    said = {"returncode": 1, "stderr": "musl libc (x86_64)\nVersion 1.2.5\nDynamic Program Loader\n"}
    found = machine.probe(machine_of(commands={("ldd", "--version"): said}))
    assert (found.libc.value, found.glibc) == ("musl 1.2.5", None)


@pytest.mark.parametrize(("given", "container"), TABLE["containers"])
def test_containers(machine_of: MachineOf, given: dict[str, object], container: str | None) -> None:
    assert machine.probe(machine_of(**given)).container == container


def test_without_vulkaninfo_the_drivers_are_named(machine_of: MachineOf) -> None:
    found = adapters.probe(machine_of(files={"/usr/share/vulkan/icd.d/nvidia_icd.json": "{}"}))
    assert (found.value, found.found_via) == (None, "Vulkan drivers: nvidia_icd.json")
    assert adapters.probe(machine_of()).value == (), "no driver, no adapter"
    displays = "    NVIDIA GT 120:\n      Chipset Model: NVIDIA GeForce GT 120\n      Bus: PCIe\n"
    mac = machine_of("darwin", commands={"system_profiler SPDisplaysDataType": displays})
    assert adapters.probe(mac).value == (), "it speaks no Metal"


def test_probes_run_side_by_side_and_none_holds_up_the_others() -> None:
    begun = time.monotonic()
    meeting = threading.Barrier(2, timeout=5)
    works = {"a": meeting.wait, "b": meeting.wait, "hangs": lambda: time.sleep(30), "breaks": lambda: 1 / 0}
    found = parallel(0.8, works)
    assert time.monotonic() - begun < 5
    assert {found["a"].value, found["b"].value} == {0, 1}
    assert found["hangs"].value is None and found["hangs"].error
    assert "ZeroDivisionError" in found["breaks"].error
